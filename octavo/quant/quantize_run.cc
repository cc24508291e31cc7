#include "octavo/quant/quantize_run.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "octavo/base/float_mode.h"
#include "octavo/numerics/small_float.h"
#include "octavo/quant/dot_parts.h"
#include "octavo/quant/element.h"
#include "octavo/quant/encode_matrix.h"
#include "octavo/quant/quantize_kernel.h"

namespace octavo::quant {
namespace {

constexpr int64_t kColumnChunk = 512;  // of a task that walks down rows

// The block of a run of axes: channels, then at most one tiled axis, then shared ones. nullopt for another order.
std::optional<int64_t> BlockOf(const Shape& array, const Shape& scale, int begin, int end) {
  int64_t block = 1;
  bool shared = false;
  for (int axis = begin; axis < end; ++axis) {
    if (array[axis] == 1) continue;
    if (shared && scale[axis] != 1) return std::nullopt;
    if (scale[axis] == array[axis]) continue;
    block *= array[axis] / scale[axis];
    shared = true;
  }
  return block;
}

int64_t Count(const Shape& shape, int begin, int end) {
  int64_t count = 1;
  for (int axis = begin; axis < end; ++axis) count *= shape[axis];
  return count;
}

// Largest magnitudes of all blocks, as bits. Tasks own whole blocks.
template <typename E>
std::vector<uint32_t> BlockMagnitudes(const Run& run, const Tensor& array, const MatrixBlocks& b) {
  const int64_t block_rows = b.rows / b.block_rows, block_cols = b.cols / b.block_cols;
  std::vector<uint32_t> largest(static_cast<size_t>(block_rows * block_cols), 0);
  const int64_t per_chunk = std::max<int64_t>(1, kColumnChunk / b.block_cols);  // blocks in a chunk of columns
  const int64_t chunks = (block_cols + per_chunk - 1) / per_chunk;
  const auto* values = array.Data<typename E::Stored>();
  run.pool.ParallelFor(block_rows * chunks, 1, [&](int64_t first, int64_t last) {
    for (int64_t task = first; task < last; ++task) {
      const int64_t row = task / chunks, col = task % chunks * per_chunk,
                    col_end = std::min(col + per_chunk, block_cols);
      uint32_t* out = largest.data() + row * block_cols;
      for (int64_t r = row * b.block_rows; r < (row + 1) * b.block_rows; ++r) {
        const auto* line = values + r * b.cols;
        for (int64_t c = col; c < col_end; ++c) {
          uint32_t top = out[c];
          for (int64_t i = c * b.block_cols; i < (c + 1) * b.block_cols; ++i) {
            top = std::max(top, MagnitudeBits(E::Load(line[i])));
          }
          out[c] = top;
        }
      }
    }
  });
  return largest;
}

bool PerTensor(const HowToQuantize& how) {
  return how.granularity.channelwise_axes.empty() && how.granularity.tiled_axes.empty();
}

}  // namespace

std::optional<MatrixBlocks> AsMatrixBlocks(const Shape& array, const Shape& scale) {
  if (array.rank() != scale.rank() || array.rank() == 0 || array.size() == 0) return std::nullopt;
  for (int axis = 0; axis < array.rank(); ++axis) {
    if (scale[axis] == 0 || array[axis] % scale[axis] != 0) return std::nullopt;
  }
  std::optional<MatrixBlocks> found;
  for (int split = array.rank() - 1; split >= 0; --split) {
    const auto rows = BlockOf(array, scale, 0, split), cols = BlockOf(array, scale, split, array.rank());
    if (!rows || !cols) continue;
    const MatrixBlocks blocks{Count(array, 0, split), Count(array, split, array.rank()), *rows, *cols, split};
    // Scales of whole rows or columns are found in one pass, and a factor along the other axis folds in.
    if ((*rows == 1 && blocks.rows > 1) || *cols == 1) return blocks;
    if (!found) found = blocks;
  }
  return found;
}

CalibrationRange Calibrate(const Run& run, const Tensor& array, const HowToQuantize& how) {
  if (run.reference || how.calibration.method != CalibrationMethod::kAbsMax)
    return Calibrate(array, how, run.arithmetic);
  const Shape parts = ScaleShape("Calibrate", array.shape(), how);
  const auto blocks = AsMatrixBlocks(array.shape(), parts);
  if (!blocks || run.arithmetic.non_finite == NonFinite::kError) return Calibrate(array, how, run.arithmetic);
  const ScopedFloatMode mode;
  return WithElement("Calibrate", array.dtype(), [&](auto element) {
    using E = decltype(element);
    const std::vector<uint32_t> bits = BlockMagnitudes<E>(run, array.Contiguous(), *blocks);
    Tensor absmax = Tensor::Empty(parts, E::kDType);
    auto out = absmax.MutableValues<typename E::Stored>();
    const float factor = E::Round(static_cast<float>(how.calibration.factor));
    for (size_t i = 0; i < bits.size(); ++i) {
      const float value = std::bit_cast<float>(bits[i]);
      out[i] = E::Store(how.calibration.factor == 1.0 ? value : E::Round(value * factor));
    }
    CalibrationRange range = CalibrationRange::Symmetric(absmax);
    range.per_tensor = PerTensor(how);
    return range;
  });
}

QArray QuantizeWithScale(const Run& run, const Tensor& array, Format format, const ScaleAndZeroPoint& scale,
                         const Tensor* noise) {
  if (run.reference) return QuantizeWithScale(array, format, scale, noise, run.arithmetic);
  if (auto fast = TryKernelCodes(run, array, format, scale, noise)) return *fast;
  const auto blocks = AsMatrixBlocks(array.shape(), scale.scale.shape());
  const bool plain = blocks && !scale.zero_point && SmallFloatEncoder::Handles(format);
  if (!plain) return QuantizeWithScale(array, format, scale, noise, run.arithmetic);
  const ScopedFloatMode mode;
  return WithElement("QuantizeWithScale", array.dtype(), [&](auto element) {
    using E = decltype(element);
    QArray result{Tensor::Empty(array.shape(), DType::kU8), CastFloat(scale.scale, E::kDType).Contiguous(),
                  std::nullopt, format};
    const bool reciprocal = ByReciprocal(run.arithmetic.division, false, result.scale.size(), array.size());
    std::vector<Divisor<E>> divisors;
    for (auto stored : result.scale.Values<typename E::Stored>()) divisors.emplace_back(E::Load(stored), reciprocal);
    const SmallFloatEncoder small(format);
    EncodeMatrix<E>(
        run, array.Contiguous(), *blocks,
        [&](float value, int64_t block) { return small(divisors[static_cast<size_t>(block)](value)); },
        result.qvalue.MutableData<uint8_t>());
    return result;
  });
}

QArray Quantize(const Run& run, const Tensor& array, const HowToQuantize& how, const Tensor* noise,
                const Tensor* factor) {
  if (!run.reference) {
    if (auto fast = TryKernelQuantize(run, array, how, noise, factor)) return *fast;
  }
  const Tensor scaled = factor == nullptr ? array : TimesScale(array, *factor);
  const CalibrationRange range = Calibrate(run, scaled, how);
  return QuantizeWithScale(run, scaled, how.format, ComputeScale(range, how.format, run.arithmetic), noise);
}

Tensor Dequantize(const Run& run, const QArray& array) {
  if (!run.reference) {
    if (auto fast = TryKernelDequantize(run, array)) return *fast;
  }
  return Dequantize(array);
}

}  // namespace octavo::quant
