#include "octavo/optim/clipping.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "octavo/base/check.h"
#include "octavo/kernels/reductions.h"

namespace octavo::optim {

double GlobalNorm(ThreadPool& pool, kernels::Isa isa, const std::vector<std::string>& names,
                  const std::vector<Tensor>& tensors) {
  OCTAVO_CHECK(names.size() == tensors.size());
  std::vector<size_t> order(names.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return names[a] < names[b]; });
  double total = 0;
  std::vector<double> partial;
  for (const size_t i : order) {
    if (!tensors[i].defined()) continue;
    const Tensor packed = tensors[i].Contiguous();
    partial.resize(static_cast<size_t>(kernels::ChunksOf(packed.size())));
    kernels::ChunkSums(pool, isa, kernels::SumOf::kSquares, packed.RawData(), packed.dtype(), packed.size(),
                       partial.data());
    for (const double part : partial) total += part;
  }
  return std::sqrt(total);
}

double ClipFactor(double norm, double threshold) { return threshold > 0 && norm > threshold ? threshold / norm : 1; }

}  // namespace octavo::optim
