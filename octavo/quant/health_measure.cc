// The passes over values that the figures come from.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/base/float_mode.h"
#include "octavo/quant/dot_parts.h"
#include "octavo/quant/element.h"
#include "octavo/quant/health.h"
#include "octavo/quant/quantize_run.h"

namespace octavo::quant {
namespace {

constexpr int64_t kChunk = 4096;  // sums have the order of chunks, whoever adds them up

// The step at the end of a format's range: values further out than half of it are clipped, not rounded.
double HalfLastStep(const FormatInfo& info) {
  if (info.kind == FormatKind::kInteger) return 0.5;
  if (info.kind == FormatKind::kTable) return 0.0;
  return std::ldexp(1.0, std::ilogb(info.max_value) - info.mantissa_bits - 1);
}

// Values beyond these are saturated, one pair per scale. A little slack: scales are rounded themselves.
struct Range {
  std::vector<float> low, high;
};
Range RangeOf(const QArray& quantized) {
  const FormatInfo& info = Info(quantized.format);
  const bool integer = info.kind == FormatKind::kInteger;
  const double high = integer ? info.qmax : info.max_value, low = integer ? info.qmin : info.min_value;
  const double half = HalfLastStep(info) + 1e-3 * (integer ? 1.0 : static_cast<double>(info.max_value));
  const std::vector<float> scales = CastFloat(quantized.scale, DType::kF32).ToVector<float>();
  std::vector<int8_t> zeros;
  if (quantized.zero_point) zeros = quantized.zero_point->RepeatTo(quantized.scale.shape()).ToVector<int8_t>();
  Range range;
  for (size_t i = 0; i < scales.size(); ++i) {
    const double zero = zeros.empty() ? 0.0 : zeros[i], scale = scales[i];
    range.low.push_back(static_cast<float>((low - half - zero) * scale));
    range.high.push_back(static_cast<float>((high + half - zero) * scale));
  }
  return range;
}

struct Partial {
  int64_t saturated = 0, nonfinite = 0, flushed = 0;
  float amax = 0, smallest = std::numeric_limits<float>::infinity();
  double squares = 0, errors = 0;

  void Add(const Partial& later) {
    saturated += later.saturated;
    nonfinite += later.nonfinite;
    flushed += later.flushed;
    amax = std::max(amax, later.amax);
    smallest = std::min(smallest, later.smallest);
    squares += later.squares;
    errors += later.errors;
  }
};

bool Finite(float x) { return (std::bit_cast<uint32_t>(x) & 0x7f800000u) != 0x7f800000u; }

// n values that share a scale (step 0) or have one each (step 1).
template <int kStep>
void CountRun(const float* x, int64_t n, const float* low, const float* high, Partial& p) {
  int32_t outside = 0, odd = 0;
  for (int64_t i = 0; i < n; ++i) {
    outside += (x[i] > high[i * kStep]) | (x[i] < low[i * kStep]);
    odd += (std::bit_cast<int32_t>(x[i]) & 0x7f800000) == 0x7f800000;
  }
  p.saturated += outside;
  p.nonfinite += odd;
}

void MeasureRun(const float* x, const float* y, int64_t n, Partial& p) {
  for (int64_t i = 0; i < n; ++i) {
    if (!Finite(x[i])) continue;
    const float magnitude = std::fabs(x[i]);
    p.amax = std::max(p.amax, magnitude);
    if (magnitude > 0) p.smallest = std::min(p.smallest, magnitude);
    p.flushed += magnitude > 0 && y[i] == 0.0f;
    const double value = x[i], error = value - static_cast<double>(y[i]);
    p.squares += value * value;
    if (Finite(y[i])) p.errors += error * error;
  }
}

// Values and the scale of each, as rows of blocks; arrays whose scales form no blocks have one per value.
struct Layout {
  MatrixBlocks blocks;
  Range range;
};
Layout LayoutOf(const Tensor& values, const QArray& quantized) {
  if (const auto blocks = AsMatrixBlocks(values.shape(), quantized.scale.shape())) return {*blocks, RangeOf(quantized)};
  QArray spread = quantized;
  spread.scale = quantized.scale.RepeatTo(values.shape());
  return {{1, values.size(), 1, 1, 0}, RangeOf(spread)};
}

void CountChunk(const float* x, int64_t begin, int64_t end, const Layout& layout, Partial& p) {
  const MatrixBlocks& b = layout.blocks;
  const int64_t across = b.cols / b.block_cols;
  for (int64_t i = begin; i < end;) {
    const int64_t row = i / b.cols, col = i % b.cols, block = row / b.block_rows * across + col / b.block_cols;
    const int64_t row_end = std::min(end, (row + 1) * b.cols);
    const float *low = layout.range.low.data() + block, *high = layout.range.high.data() + block;
    if (b.block_cols == 1) {
      CountRun<1>(x + i, row_end - i, low, high, p);
      i = row_end;
    } else {
      const int64_t stop = std::min(row_end, i - col % b.block_cols + b.block_cols);
      CountRun<0>(x + i, stop - i, low, high, p);
      i = stop;
    }
  }
}

// Whether the scales alone say that nothing was clipped and everything is finite. A scale that comes from the values
// clips none of them, and is not finite when one of them is not. Float recipes guard their scales: per channel with 1,
// which is then looked at more closely, blocks and whole tensors in ways of their own.
bool ScalesTell(const QArray& quantized, bool follows) {
  if (!follows) return false;
  const FormatInfo& info = Info(quantized.format);
  const bool integer = info.kind == FormatKind::kInteger;
  if (!integer && (info.block > 0 || quantized.scale.size() < 2 || !TiledAxes(quantized).empty())) return false;
  const Tensor floats = CastFloat(quantized.scale, DType::kF32).Contiguous();
  return std::ranges::all_of(floats.Values<float>(), [=](float x) { return Finite(x) && (integer || x != 1.0f); });
}

[[noreturn]] void ThrowNonFinite(const Run& run, Spot spot, const OperandHealth& health) {
  throw Error(ErrorCode::kNumbers,
              fmt::format("{}{}: {} of {} values are NaN or infinite",
                          run.arithmetic.site.empty() ? "" : fmt::format("{}, ", run.arithmetic.site), Describe(spot),
                          health.nonfinite, health.elements),
              "the tensor cannot be quantized; look at the step before, or let it propagate with non_finite=propagate");
}

}  // namespace

OperandHealth MeasureHealth(const Run& run, const Tensor& values, const QArray& quantized, bool follows, bool full) {
  OperandHealth health;
  health.format = quantized.format;
  health.follows = follows;
  health.elements = values.size();
  if (values.size() == 0) return health;
  const ScopedFloatMode mode;
  if (!full && ScalesTell(quantized, follows)) return health;
  const Tensor x = CastFloat(values, DType::kF32).Contiguous();
  const Tensor y = full ? CastFloat(Dequantize(run, quantized), DType::kF32).Contiguous() : Tensor();
  const Layout layout = LayoutOf(x, quantized);
  const int64_t chunks = (x.size() + kChunk - 1) / kChunk;
  std::vector<Partial> partials(static_cast<size_t>(chunks));
  const float* from = x.Data<float>();
  const float* decoded = full ? y.Data<float>() : nullptr;
  run.pool.ParallelFor(chunks, 4, [&](int64_t first, int64_t last) {
    for (int64_t chunk = first; chunk < last; ++chunk) {
      const int64_t begin = chunk * kChunk, end = std::min(begin + kChunk, x.size());
      Partial& p = partials[static_cast<size_t>(chunk)];
      CountChunk(from, begin, end, layout, p);
      if (full) MeasureRun(from + begin, decoded + begin, end - begin, p);
    }
  });
  Partial sum;
  for (const Partial& partial : partials) sum.Add(partial);
  health.saturated = sum.saturated;
  health.nonfinite = sum.nonfinite;
  if (!full) return health;
  health.measured = x.size();
  health.flushed = sum.flushed;
  health.amax = sum.amax;
  health.smallest = std::isinf(sum.smallest) ? 0.0f : sum.smallest;
  health.squares = sum.squares;
  health.error_squares = sum.errors;
  for (float scale : CastFloat(quantized.scale, DType::kF32).ToVector<float>()) {
    if (!Finite(scale)) continue;
    health.scale_min = health.scale_min == 0 ? scale : std::min(health.scale_min, scale);
    health.scale_max = std::max(health.scale_max, scale);
  }
  return health;
}

void ObserveHealth(const Run& run, Spot spot, const Tensor& values, const QArray& quantized, bool follows,
                   const Tensor* factor) {
  const bool strict = run.arithmetic.non_finite == NonFinite::kError;
  if ((run.health == nullptr && !strict) || values.is_meta()) return;
  if (run.exchanged) spot = Exchanged(spot);
  const bool full = run.health != nullptr && run.health->mode() == HealthMode::kFull;
  const bool needs_values = factor != nullptr && (full || !ScalesTell(quantized, follows));
  const Tensor seen = needs_values ? TimesScale(values, *factor) : values;
  const OperandHealth health = MeasureHealth(run, seen, quantized, follows, full);
  if (strict && health.nonfinite > 0) ThrowNonFinite(run, spot, health);
  if (run.health != nullptr) run.health->At(std::string(run.arithmetic.site), NameOf(spot)).Merge(health);
}

}  // namespace octavo::quant
