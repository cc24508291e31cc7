// Floats of one stored type as another: f32, bf16, f16. Used where weights are restored into parameters of another
// type. One rounding to nearest even; widening is exact.
#pragma once

#include "octavo/base/thread_pool.h"
#include "octavo/tensor/tensor.h"

namespace octavo::weights {

// Whether both are among f32, bf16, f16.
bool ConvertsFloats(DType from, DType to);

// A usage error unless ConvertsFloats. The same bits with and without threads.
Tensor ConvertFloats(const Tensor& tensor, DType to, ThreadPool* pool = nullptr);

}  // namespace octavo::weights
