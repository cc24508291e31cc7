#include "octavo/cli/golden_compare.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "octavo/base/function_ref.h"
#include "octavo/numerics/half.h"

namespace octavo {
namespace {

// Elements as their bits, widened; for signed integers as the bits of the value.
uint64_t BitsAt(const Tensor& tensor, int64_t index) {
  const int64_t size = SizeOf(tensor.dtype());
  uint64_t bits = 0;
  std::memcpy(&bits, tensor.RawData() + index * size, static_cast<size_t>(size));
  return bits;
}

// The value as a double. Widened by integer code, since compute threads flush the subnormals of f32.
double ValueAt(const Tensor& tensor, int64_t index) {
  const uint64_t bits = BitsAt(tensor, index);
  const auto from_f32 = [](uint32_t word) {
    const uint32_t magnitude = word & 0x7fffffffu;
    if (magnitude != 0 && magnitude < 0x00800000u) {
      const double value = static_cast<double>(magnitude) * 0x1p-149;
      return (word >> 31) != 0 ? -value : value;
    }
    return static_cast<double>(std::bit_cast<float>(word));
  };
  switch (tensor.dtype()) {
    case DType::kF32:
      return from_f32(static_cast<uint32_t>(bits));
    case DType::kF64:
      return std::bit_cast<double>(bits);
    case DType::kBF16:
      return from_f32(static_cast<uint32_t>(bits) << 16);
    case DType::kF16:
      return static_cast<double>(F16ToF32(static_cast<uint16_t>(bits)));
    case DType::kI8:
      return static_cast<double>(static_cast<int8_t>(bits));
    case DType::kI16:
      return static_cast<double>(static_cast<int16_t>(bits));
    case DType::kI32:
      return static_cast<double>(static_cast<int32_t>(bits));
    case DType::kI64:
      return static_cast<double>(static_cast<int64_t>(bits));
    default:
      return static_cast<double>(bits);
  }
}

Format FormatOf(DType dtype) {
  return dtype == DType::kF32 ? Format::kF32 : dtype == DType::kBF16 ? Format::kBF16 : Format::kF16;
}

bool IsNanBits(DType dtype, uint64_t bits) {
  if (dtype == DType::kF64) return (bits & ~(uint64_t{1} << 63)) > 0x7ff0000000000000u;
  return IsFloat(dtype) && IsNan(FormatOf(dtype), static_cast<uint32_t>(bits));
}

bool IsZeroBits(DType dtype, uint64_t bits) {
  const int sign = static_cast<int>(SizeOf(dtype)) * 8 - 1;
  return (bits & ~(uint64_t{1} << sign)) == 0;
}

// A code of +0 or -0; by its bits, as a comparison of values would take subnormals for zeros.
bool IsZeroCode(Format format, uint32_t code) {
  const FormatInfo& info = Info(format);
  if (info.kind != FormatKind::kFloat || !info.has_sign || IsNan(format, code)) return false;
  return (code & ((uint64_t{1} << (info.bits - 1)) - 1)) == 0;
}

// Shape and dtype first; then every element through `equal(index)`.
Mismatch Compare(const Tensor& expected_any, const Tensor& actual_any, const char* how,
                 FunctionRef<bool(const Tensor&, const Tensor&, int64_t)> equal) {
  if (!actual_any.defined()) return "nothing was computed";
  if (expected_any.dtype() != actual_any.dtype() || !(expected_any.shape() == actual_any.shape())) {
    return fmt::format("expected {}, found {}", expected_any.ToString(), actual_any.ToString());
  }
  const Tensor expected = expected_any.Contiguous(), actual = actual_any.Contiguous();
  int64_t different = 0, first = 0;
  for (int64_t i = 0; i < expected.size(); ++i) {
    if (equal(expected, actual, i)) continue;
    if (different++ == 0) first = i;
  }
  if (different == 0) return std::nullopt;
  const int digits = static_cast<int>(SizeOf(expected.dtype())) * 2;
  return fmt::format("{} of {} elements differ ({}); first at {}: expected {} (0x{:0{}x}), found {} (0x{:0{}x})",
                     different, expected.size(), how, first, ValueAt(expected, first), BitsAt(expected, first), digits,
                     ValueAt(actual, first), BitsAt(actual, first), digits);
}

double Largest(const Tensor& any) {
  const Tensor tensor = any.Contiguous();
  double largest = 0;
  for (int64_t i = 0; i < tensor.size(); ++i) {
    const double magnitude = std::fabs(ValueAt(tensor, i));
    if (std::isfinite(magnitude)) largest = std::max(largest, magnitude);
  }
  return largest;
}

// Both NaN, or the same infinity, or finite and close.
bool Close(double expected, double actual, double tolerance) {
  if (std::isnan(expected) || std::isnan(actual)) return std::isnan(expected) && std::isnan(actual);
  if (std::isinf(expected) || std::isinf(actual)) return expected == actual;
  return std::fabs(expected - actual) <= tolerance;
}

// Float bits on a line without a gap: neighbours differ by one, both zeros are 0.
int64_t OnALine(DType dtype, uint64_t bits) {
  const int sign = static_cast<int>(SizeOf(dtype)) * 8 - 1;
  const int64_t magnitude = static_cast<int64_t>(bits & ~(uint64_t{1} << sign));
  return (bits >> sign & 1) != 0 ? -magnitude : magnitude;
}

}  // namespace

Mismatch CompareBits(const Tensor& expected, const Tensor& actual, std::optional<Format> format) {
  const DType dtype = expected.dtype();
  return Compare(expected, actual, "bits", [&](const Tensor& e, const Tensor& a, int64_t i) {
    const uint64_t x = BitsAt(e, i), y = BitsAt(a, i);
    if (x == y) return true;
    if (format) {
      const uint32_t cx = static_cast<uint32_t>(x), cy = static_cast<uint32_t>(y);
      if (IsNan(*format, cx) || IsNan(*format, cy)) return IsNan(*format, cx) && IsNan(*format, cy);
      return IsZeroCode(*format, cx) && IsZeroCode(*format, cy);
    }
    if (!IsFloat(dtype)) return false;
    if (IsNanBits(dtype, x) && IsNanBits(dtype, y)) return true;
    return IsZeroBits(dtype, x) && IsZeroBits(dtype, y);
  });
}

Mismatch CompareUlps(const Tensor& expected, const Tensor& actual, int64_t places) {
  const DType dtype = expected.dtype();
  const std::string how = fmt::format("at most {} units in the last place", places);
  return Compare(expected, actual, how.c_str(), [&](const Tensor& e, const Tensor& a, int64_t i) {
    const uint64_t x = BitsAt(e, i), y = BitsAt(a, i);
    if (x == y) return true;
    if (!IsFloat(dtype)) return false;
    if (IsNanBits(dtype, x) || IsNanBits(dtype, y)) return IsNanBits(dtype, x) && IsNanBits(dtype, y);
    if (!std::isfinite(ValueAt(e, i)) || !std::isfinite(ValueAt(a, i))) return false;
    return std::llabs(OnALine(dtype, x) - OnALine(dtype, y)) <= places;
  });
}

Mismatch CompareDot(const Tensor& expected, const Tensor& actual) {
  switch (expected.dtype()) {
    case DType::kF32:
    case DType::kF64:
      return CompareToLargest(expected, actual, 2e-6);
    case DType::kBF16:
    case DType::kF16:
      return CompareUlps(expected, actual, 1);
    default:
      return CompareBits(expected, actual);
  }
}

Mismatch CompareRelative(const Tensor& expected, const Tensor& actual, double relative) {
  const std::string how = fmt::format("within {} relative", relative);
  return Compare(expected, actual, how.c_str(), [&](const Tensor& e, const Tensor& a, int64_t i) {
    const double x = ValueAt(e, i);
    return Close(x, ValueAt(a, i), relative * std::fabs(x));
  });
}

Mismatch CompareToLargest(const Tensor& expected, const Tensor& actual, double relative) {
  const double tolerance = relative * Largest(expected);
  const std::string how = fmt::format("within {} of the largest", relative);
  return Compare(expected, actual, how.c_str(), [&](const Tensor& e, const Tensor& a, int64_t i) {
    return Close(ValueAt(e, i), ValueAt(a, i), tolerance);
  });
}

Mismatch CompareChained(const Tensor& expected, const Tensor& actual, double loose, double tight) {
  if (Mismatch mismatch = CompareToLargest(expected, actual, loose)) return mismatch;
  int64_t within = 0;
  const double tolerance = tight * Largest(expected);
  Compare(expected, actual, "", [&](const Tensor& e, const Tensor& a, int64_t i) {
    within += Close(ValueAt(e, i), ValueAt(a, i), tolerance);
    return true;
  });
  if (2 * within >= expected.size()) return std::nullopt;
  return fmt::format("only {} of {} elements are within {} of the largest", within, expected.size(), tight);
}

}  // namespace octavo
