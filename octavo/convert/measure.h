// How far codes lie from the floats they were made from. In fp64 over chunks of 4096 elements, added in order: the same
// for any number of threads. Used by the converter for its manifest.
#pragma once

#include "octavo/base/thread_pool.h"
#include "octavo/quant/run.h"
#include "octavo/tensor/qarray.h"

namespace octavo::convert {

struct CodesError {
  double sqnr_db = 0;  // 10 log10 of sum x^2 / sum (x - x')^2; 999 when every value is met exactly
  double largest = 0;  // |x - x'|
};

CodesError MeasureCodes(const Tensor& floats, const QArray& codes, ThreadPool& pool, kernels::Isa isa);

}  // namespace octavo::convert
