// Quantizes four numbers with an installed octavo.
#include <fmt/format.h>

#include "octavo/quant/quantize.h"
#include "octavo/version.h"

int main() {
  const octavo::Tensor x =
      octavo::Tensor::FromValues<float>({1, 4}, octavo::DType::kF32, std::vector<float>{1, -2, 3, 0.5f});
  const octavo::QArray q = octavo::quant::Quantize(x, {});
  fmt::print("octavo {}: {}\n", OCTAVO_VERSION, fmt::join(q.qvalue.ToVector<int8_t>(), " "));
}
