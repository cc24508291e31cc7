// Norms over all parameters, in an order that nothing can change: double partial sums per 4096 elements, added in the
// order of the names. Used for clipping and for the norms that the log shows.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "octavo/base/thread_pool.h"
#include "octavo/kernels/isa.h"
#include "octavo/tensor/tensor.h"

namespace octavo::optim {

// sqrt of the sum of all squares. Undefined tensors count as zero. names.size() == tensors.size().
double GlobalNorm(ThreadPool& pool, kernels::Isa isa, const std::vector<std::string>& names,
                  const std::vector<Tensor>& tensors);

// The same taken tensor by tensor, as each is at hand and still in the cache; in any order.
class NormOfParts {
 public:
  explicit NormOfParts(const std::vector<std::string>& names);
  void Take(ThreadPool& pool, kernels::Isa isa, size_t index, const Tensor& tensor);  // again: in place of the first
  // Where to write the ChunkSums of a tensor of `count` elements that somebody else takes the squares of.
  double* Slot(size_t index, int64_t count);
  bool Has(size_t index) const { return taken_[index]; }
  double Norm() const;  // what was not taken counts as zero

 private:
  std::vector<size_t> order_;  // of the names
  std::vector<std::vector<double>> partials_;
  std::vector<bool> taken_;
};

// What to multiply gradients by so that their norm is at most `threshold`; 1 when it is, and for a threshold of 0.
double ClipFactor(double norm, double threshold);

}  // namespace octavo::optim
