// Quantizes a sample of weights and activations in several formats, multiplies them, and prints what each format costs:
// bits per weight, error of the weights, error of the product. The first thing `./run demo` shows.
#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "octavo/base/rng.h"
#include "octavo/base/thread_pool.h"
#include "octavo/kernels/isa.h"
#include "octavo/quant/dot.h"
#include "octavo/quant/dot_axes.h"
#include "octavo/quant/quantize.h"

namespace {

using namespace octavo;

constexpr int64_t kRows = 256, kInner = 1024, kColumns = 512;

struct Row {
  const char* name;
  Format weight;
  std::optional<Format> activation;  // unset: float activations
  std::optional<int64_t> tile;
};

constexpr Row kTable[] = {
    {"int8", Format::kInt8, Format::kInt8, {}},
    {"int8 weights only", Format::kInt8, {}, {}},
    {"int4", Format::kInt4, Format::kInt8, {}},
    {"int4, groups of 128", Format::kInt4, Format::kInt8, 128},
    {"int4, groups of 32", Format::kInt4, Format::kInt8, 32},
    {"nf4, groups of 64", Format::kNF4, {}, 64},
    {"fp8 e4m3", Format::kF8E4M3FN, Format::kF8E4M3FN, {}},
    {"fp8 e5m2", Format::kF8E5M2, Format::kF8E5M2, {}},
    {"mxfp8", Format::kMxfp8, Format::kMxfp8, 32},
    {"mxfp4", Format::kMxfp4, Format::kMxfp4, 32},
    {"nvfp4", Format::kNvfp4, Format::kNvfp4, 16},
};

// Normal numbers; every 64th column of activations is ten times larger, as in real models.
Tensor Sample(const Shape& shape, uint64_t seed, float spread, bool outliers) {
  Tensor result = Tensor::Empty(shape, DType::kF32);
  const auto values = result.MutableValues<float>();
  for (size_t i = 0; i < values.size(); ++i) {
    const bool large = outliers && static_cast<int64_t>(i) % shape[1] % 64 == 0;
    values[i] = spread * Normal(RngKey::FromSeed(seed), i) * (large ? 10.0f : 1.0f);
  }
  return result;
}

// |a - b| / |b|, as a percentage.
double ErrorPercent(const Tensor& found, const Tensor& expected) {
  const std::vector<float> a = found.ToVector<float>(), b = expected.ToVector<float>();
  double difference = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - b[i], 2);
    size += static_cast<double>(b[i]) * b[i];
  }
  return 100 * std::sqrt(difference / size);
}

quant::HowToQuantize How(Format format, const Shape& shape, int contracted, std::optional<int64_t> tile) {
  quant::HowToQuantize how;
  how.format = format;
  how.granularity =
      quant::GranularityForDot(shape, {contracted}, tile ? std::optional<quant::TileSize>(*tile) : std::nullopt);
  return how;
}

}  // namespace

int main() {
  ThreadPool pool(ChooseThreads(0));
  kernels::Workspace workspace;
  quant::MacCount macs;
  const quant::Run run{pool, kernels::ChooseIsa().isa, workspace, {}, &macs};
  const Tensor x = Sample({kRows, kInner}, 1, 1.0f, true), w = Sample({kInner, kColumns}, 2, 0.05f, false);
  const DotDims dims{{1}, {0}, {}, {}};
  const Tensor exact = quant::SlowDot(run, x, w, dims);
  fmt::print("activations [{}, {}] with outlier columns, weights [{}, {}]; errors against fp32\n\n", kRows, kInner,
             kInner, kColumns);
  fmt::print("{:<22} {:>15} {:>14} {:>14}   {}\n", "format", "bits per weight", "weight error", "product error",
             "multiplied");
  for (const Row& row : kTable) {
    const QArray weight = quant::Quantize(w, How(row.weight, w.shape(), 0, row.tile));
    quant::DotOperand activation = x;
    if (row.activation) {
      const bool block = Info(*row.activation).block > 0;
      activation = quant::Quantize(x, How(*row.activation, x.shape(), 1, block ? row.tile : std::nullopt));
    }
    macs = {};
    const Tensor product = quant::DotGeneral(run, activation, weight, dims);
    const double scale_bits = Info(row.weight).block > 0 ? 8 : 32;
    const double bits =
        Info(row.weight).bits + scale_bits * static_cast<double>(weight.scale.size()) / static_cast<double>(w.size());
    fmt::print("{:<22} {:>15.2f} {:>12.3f} % {:>12.3f} %   {}\n", row.name, bits,
               ErrorPercent(quant::Dequantize(weight), w), ErrorPercent(product, exact),
               macs.integer > 0 ? "as integers, exactly" : "in fp32, decoded first");
  }
}
