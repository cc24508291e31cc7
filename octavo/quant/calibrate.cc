#include <cmath>
#include <vector>

#include "octavo/base/float_mode.h"
#include "octavo/quant/element.h"
#include "octavo/quant/quantize.h"
#include "octavo/quant/tile_runs.h"

namespace octavo::quant {
namespace {

constexpr const char* kOp = "Calibrate";

template <typename E>
Tensor Filled(const Shape& shape, double value) {
  Tensor result = Tensor::Empty(shape, E::kDType);
  for (auto& element : result.template MutableValues<typename E::Stored>()) {
    element = E::Store(static_cast<float>(value));
  }
  return result;
}

// A number written in a method takes the dtype of the array before it is used.
template <typename E>
float Weak(double number) {
  return E::Round(static_cast<float>(number));
}

void RefuseNonFinite(std::span<const float> found, const Tensor& array, const Arithmetic& arithmetic) {
  if (arithmetic.non_finite == NonFinite::kPropagate) return;
  for (float value : found) {
    if (IsFiniteBits(value)) continue;
    throw Error(
        ErrorCode::kNumbers,
        fmt::format("{}: {} in {}", arithmetic.Where("Calibrate"), IsNanBits(value) ? "NaN" : "infinity",
                    array.ToString()),
        "the tensor cannot be quantized; look at the step before, or let it propagate with non_finite=propagate");
  }
}

template <typename E>
Tensor StoreAll(const Shape& shape, std::span<const float> values) {
  Tensor result = Tensor::Empty(shape, E::kDType);
  auto stored = result.template MutableValues<typename E::Stored>();
  for (size_t i = 0; i < values.size(); ++i) stored[i] = E::Store(values[i]);
  return result;
}

template <typename E>
CalibrationRange AbsMax(const Tensor& array, const Shape& parts, double factor, const Arithmetic& arithmetic) {
  auto values = array.Values<typename E::Stored>();
  std::vector<uint32_t> bits(static_cast<size_t>(parts.size()), 0);
  ForEachRun(array.shape(), parts, [&](int64_t begin, int64_t part, int64_t length) {
    uint32_t largest = bits[static_cast<size_t>(part)];
    for (int64_t i = begin; i < begin + length; ++i) {
      largest = std::max(largest, MagnitudeBits(E::Load(values[static_cast<size_t>(i)])));
    }
    bits[static_cast<size_t>(part)] = largest;
  });
  std::vector<float> result;
  result.reserve(bits.size());
  for (uint32_t b : bits) result.push_back(std::bit_cast<float>(b));
  RefuseNonFinite(result, array, arithmetic);
  if (factor != 1.0) {
    for (float& value : result) value = E::Round(value * Weak<E>(factor));
  }
  return CalibrationRange::Symmetric(StoreAll<E>(parts, result));
}

template <typename E>
CalibrationRange MinMax(const Tensor& array, const Shape& parts, double factor, const Arithmetic& arithmetic) {
  auto values = array.Values<typename E::Stored>();
  // The range always holds 0, so 0 is where both start.
  std::vector<float> low(static_cast<size_t>(parts.size()), 0.0f), high = low;
  ForEachRun(array.shape(), parts, [&](int64_t begin, int64_t part, int64_t length) {
    float& smallest = low[static_cast<size_t>(part)];
    float& largest = high[static_cast<size_t>(part)];
    for (int64_t i = begin; i < begin + length; ++i) {
      const float value = E::Load(values[static_cast<size_t>(i)]);
      smallest = MinNan(smallest, value);
      largest = MaxNan(largest, value);
    }
  });
  RefuseNonFinite(low, array, arithmetic);
  RefuseNonFinite(high, array, arithmetic);
  if (factor != 1.0) {
    for (float& value : low) value = E::Round(value * Weak<E>(factor));
    for (float& value : high) value = E::Round(value * Weak<E>(factor));
  }
  return CalibrationRange::Between(StoreAll<E>(parts, low), StoreAll<E>(parts, high));
}

// A sum of a known number of terms in the order in which the reference's compiler adds them: windows of 32 in sequence,
// then the windows likewise; a last partial window is centred, so the first one may be short.
class WindowedSum {
 public:
  explicit WindowedSum(int64_t terms) {
    do {
      const int64_t windows = (terms + kWindow - 1) / kWindow, missing = windows * kWindow - terms;
      levels_.push_back({0.0f, terms > kWindow ? kWindow - missing / 2 : kWindow, false});
      terms = windows;
    } while (terms > 1);
  }
  void Add(float term) { AddAt(0, term); }
  // After all terms: everything has moved to the last level.
  float Finish() {
    for (size_t level = 0; level + 1 < levels_.size(); ++level) {
      if (levels_[level].filled) Flush(level);
    }
    return levels_.back().sum;
  }

 private:
  static constexpr int64_t kWindow = 32;
  struct Level {
    float sum = 0.0f;
    int64_t left = kWindow;  // of the window that is being filled
    bool filled = false;
  };

  void AddAt(size_t level, float term) {
    Level& at = levels_[level];
    at.sum += term;
    at.filled = true;
    if (--at.left == 0 && level + 1 < levels_.size()) Flush(level);
  }
  void Flush(size_t level) {
    const float sum = levels_[level].sum;
    levels_[level] = {};
    AddAt(level + 1, sum);
  }

  std::vector<Level> levels_;
};

// sqrt(mean(x²)) * factor. The square is rounded to the dtype, the mean is made in f32 and rounded to the dtype.
template <typename E>
CalibrationRange Rms(const Tensor& array, const Shape& parts, double factor, bool per_tensor,
                     const Arithmetic& arithmetic) {
  auto values = array.Values<typename E::Stored>();
  const int64_t count = parts.size() == 0 ? 1 : std::max<int64_t>(array.size() / parts.size(), 1);
  std::vector<WindowedSum> sums(static_cast<size_t>(parts.size()), WindowedSum(count));
  ForEachRun(array.shape(), parts, [&](int64_t begin, int64_t part, int64_t length) {
    WindowedSum& sum = sums[static_cast<size_t>(part)];
    for (int64_t i = begin; i < begin + length; ++i) {
      const float value = E::Load(values[static_cast<size_t>(i)]);
      sum.Add(E::Round(value * value));
    }
  });
  const bool reciprocal = ByReciprocal(arithmetic.division, per_tensor, 1, parts.size());
  const Divisor<F32Element> by_count(static_cast<float>(count), reciprocal);
  std::vector<float> result;
  result.reserve(sums.size());
  for (WindowedSum& sum : sums) {
    const float mean = E::Round(by_count(sum.Finish()));
    result.push_back(E::Round(E::Round(std::sqrt(mean)) * Weak<E>(factor)));
  }
  RefuseNonFinite(result, array, arithmetic);
  return CalibrationRange::Symmetric(StoreAll<E>(parts, result));
}

// No data is looked at: one range for the whole array.
template <typename E>
CalibrationRange Fixed(const Tensor& array, const Calibration& calibration) {
  const Shape one(std::vector<int64_t>(static_cast<size_t>(array.rank()), 1));
  if (calibration.low + calibration.high == 0) return CalibrationRange::Symmetric(Filled<E>(one, calibration.high));
  return CalibrationRange::Between(Filled<E>(one, calibration.low), Filled<E>(one, calibration.high));
}

}  // namespace

CalibrationRange Calibrate(const Tensor& array, const HowToQuantize& how, const Arithmetic& arithmetic) {
  const ScopedFloatMode mode;
  const Shape parts = ScaleShape(kOp, array.shape(), how);
  const bool per_tensor = how.calibration.method == CalibrationMethod::kFixed ||
                          (how.granularity.channelwise_axes.empty() && how.granularity.tiled_axes.empty());
  CalibrationRange range = WithElement(kOp, array.dtype(), [&](auto element) -> CalibrationRange {
    using E = decltype(element);
    const Tensor packed = array.Contiguous();
    switch (how.calibration.method) {
      case CalibrationMethod::kAbsMax:
        return AbsMax<E>(packed, parts, how.calibration.factor, arithmetic);
      case CalibrationMethod::kMinMax:
        return MinMax<E>(packed, parts, how.calibration.factor, arithmetic);
      case CalibrationMethod::kRms:
        return Rms<E>(packed, parts, how.calibration.factor, per_tensor, arithmetic);
      case CalibrationMethod::kFixed:
        break;
    }
    return Fixed<E>(packed, how.calibration);
  });
  range.per_tensor = per_tensor;
  return range;
}

}  // namespace octavo::quant
