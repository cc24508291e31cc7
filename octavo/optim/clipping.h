// Norms over all parameters, in an order that nothing can change: double partial sums per 4096 elements, added in the
// order of the names. Used for clipping and for the norms that the log shows.
#pragma once

#include <string>
#include <vector>

#include "octavo/base/thread_pool.h"
#include "octavo/kernels/isa.h"
#include "octavo/tensor/tensor.h"

namespace octavo::optim {

// sqrt of the sum of all squares. Undefined tensors count as zero. names.size() == tensors.size().
double GlobalNorm(ThreadPool& pool, kernels::Isa isa, const std::vector<std::string>& names,
                  const std::vector<Tensor>& tensors);

// What to multiply gradients by so that their norm is at most `threshold`; 1 when it is, and for a threshold of 0.
double ClipFactor(double norm, double threshold);

}  // namespace octavo::optim
