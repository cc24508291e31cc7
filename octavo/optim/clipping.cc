#include "octavo/optim/clipping.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "octavo/base/check.h"
#include "octavo/kernels/reductions.h"

namespace octavo::optim {

NormOfParts::NormOfParts(const std::vector<std::string>& names)
    : order_(names.size()), partials_(names.size()), taken_(names.size(), false) {
  std::iota(order_.begin(), order_.end(), size_t{0});
  std::sort(order_.begin(), order_.end(), [&](size_t a, size_t b) { return names[a] < names[b]; });
}

void NormOfParts::Take(ThreadPool& pool, kernels::Isa isa, size_t index, const Tensor& tensor) {
  const Tensor packed = tensor.Contiguous();
  kernels::ChunkSums(pool, isa, kernels::SumOf::kSquares, packed.RawData(), packed.dtype(), packed.size(),
                     Slot(index, packed.size()));
}

double* NormOfParts::Slot(size_t index, int64_t count) {
  taken_[index] = true;
  partials_[index].resize(static_cast<size_t>(kernels::ChunksOf(count)));
  return partials_[index].data();
}

double NormOfParts::Norm() const {
  double total = 0;
  for (const size_t i : order_) {
    for (const double part : partials_[i]) total += part;
  }
  return std::sqrt(total);
}

double GlobalNorm(ThreadPool& pool, kernels::Isa isa, const std::vector<std::string>& names,
                  const std::vector<Tensor>& tensors) {
  OCTAVO_CHECK(names.size() == tensors.size());
  NormOfParts norm(names);
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].defined()) norm.Take(pool, isa, i, tensors[i]);
  }
  return norm.Norm();
}

double ClipFactor(double norm, double threshold) { return threshold > 0 && norm > threshold ? threshold / norm : 1; }

}  // namespace octavo::optim
