#include "octavo/numerics/format.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/base/nearest.h"

namespace octavo {
namespace {

// Rows are built by these four so that a row in the table below says only what is special to its format.
constexpr FormatInfo Integer(Format format, std::string_view name, int bits, bool is_signed, Format storage,
                             DType dtype) {
  const int64_t low = is_signed ? -(int64_t{1} << (bits - 1)) : 0;
  const int64_t high = is_signed ? -low - 1 : (int64_t{1} << bits) - 1;
  FormatInfo info{};
  info.format = format;
  info.name = name;
  info.kind = FormatKind::kInteger;
  info.bits = bits;
  info.has_sign = is_signed;
  info.nan = NanStyle::kNone;
  info.min_value = static_cast<float>(low);
  info.max_value = static_cast<float>(high);
  info.qmin = static_cast<int32_t>(low);
  info.qmax = static_cast<int32_t>(high);
  // 16 bits use the whole range without the half step; 32 bits are for accumulators, not for quantizing.
  info.symmetric_bound = bits > 16 ? 0.0f : bits == 16 ? 32768.0f : static_cast<float>(high) + 0.5f;
  if (is_signed && (bits == 4 || bits == 8 || bits == 16)) info.asymmetric = Bounds{info.min_value, info.max_value};
  info.storage = storage;
  info.dtype = dtype;
  return info;
}

constexpr float PowerOfTwo(int exponent) {
  float value = 1.0f;
  for (; exponent > 0; --exponent) value *= 2.0f;
  for (; exponent < 0; ++exponent) value *= 0.5f;
  return value;
}

constexpr FormatInfo Float(Format format, std::string_view name, int exponent_bits, int mantissa_bits, int bias,
                           bool has_inf, NanStyle nan, DType dtype) {
  FormatInfo info{};
  info.format = format;
  info.name = name;
  info.kind = FormatKind::kFloat;
  info.bits = 1 + exponent_bits + mantissa_bits;
  info.has_sign = true;
  info.exponent_bits = exponent_bits;
  info.mantissa_bits = mantissa_bits;
  info.bias = bias;
  info.has_inf = has_inf;
  info.nan = nan;
  const int top = (1 << exponent_bits) - 1 - bias - (has_inf ? 1 : 0);               // exponent of the largest number
  const int steps = (2 << mantissa_bits) - 1 - (nan == NanStyle::kAllOnes ? 1 : 0);  // its significand, as an integer
  info.max_value = static_cast<float>(steps) * PowerOfTwo(top - mantissa_bits);
  info.min_value = -info.max_value;
  info.symmetric_bound = info.bits <= 8 ? info.max_value : 0.0f;
  info.storage = format;
  info.dtype = dtype;
  return info;
}

constexpr FormatInfo E8M0() {
  FormatInfo info{};
  info.format = Format::kF8E8M0FNU;
  info.name = "float8_e8m0fnu";
  info.kind = FormatKind::kFloat;
  info.bits = 8;
  info.exponent_bits = 8;
  info.bias = 127;
  info.nan = NanStyle::kAllOnes;
  info.min_value = 0x1p-127f;
  info.max_value = 0x1p127f;
  info.symmetric_bound = info.max_value;
  info.storage = info.format;
  info.dtype = DType::kU8;
  return info;
}

constexpr FormatInfo Nf4() {
  FormatInfo info{};
  info.format = Format::kNF4;
  info.name = "nf4";
  info.kind = FormatKind::kTable;
  info.bits = 4;
  info.nan = NanStyle::kNone;
  info.min_value = -1.0f;
  info.max_value = 1.0f;
  info.symmetric_bound = 1.0f;
  info.qmax = 15;
  info.storage = info.format;
  info.dtype = DType::kU8;
  return info;
}

constexpr FormatInfo Block(Format format, std::string_view name, const FormatInfo& storage, int block) {
  FormatInfo info = storage;
  info.format = format;
  info.name = name;
  info.storage = storage.format;
  info.block = block;
  return info;
}

using F = Format;
using D = DType;
constexpr FormatInfo kE4M3FN = Float(F::kF8E4M3FN, "float8_e4m3fn", 4, 3, 7, false, NanStyle::kAllOnes, D::kU8);
constexpr FormatInfo kE2M1FN = Float(F::kF4E2M1FN, "float4_e2m1fn", 2, 1, 1, false, NanStyle::kNone, D::kU8);

// The one table of formats, in the order of the enum.
constexpr FormatInfo kTable[] = {
    Integer(F::kInt2, "int2", 2, true, F::kInt4, D::kI8),
    Integer(F::kInt3, "int3", 3, true, F::kInt4, D::kI8),
    Integer(F::kInt4, "int4", 4, true, F::kInt4, D::kI8),
    Integer(F::kInt5, "int5", 5, true, F::kInt8, D::kI8),
    Integer(F::kInt6, "int6", 6, true, F::kInt8, D::kI8),
    Integer(F::kInt7, "int7", 7, true, F::kInt8, D::kI8),
    Integer(F::kInt8, "int8", 8, true, F::kInt8, D::kI8),
    Integer(F::kInt16, "int16", 16, true, F::kInt16, D::kI16),
    Integer(F::kInt32, "int32", 32, true, F::kInt32, D::kI32),
    Integer(F::kUint2, "uint2", 2, false, F::kUint2, D::kU8),
    Integer(F::kUint4, "uint4", 4, false, F::kUint4, D::kU8),
    Integer(F::kUint8, "uint8", 8, false, F::kUint8, D::kU8),
    kE4M3FN,
    Float(F::kF8E5M2, "float8_e5m2", 5, 2, 15, true, NanStyle::kIeee, D::kU8),
    Float(F::kF8E4M3FNUZ, "float8_e4m3fnuz", 4, 3, 8, false, NanStyle::kNegativeZero, D::kU8),
    Float(F::kF8E5M2FNUZ, "float8_e5m2fnuz", 5, 2, 16, false, NanStyle::kNegativeZero, D::kU8),
    Float(F::kF8E4M3, "float8_e4m3", 4, 3, 7, true, NanStyle::kIeee, D::kU8),
    Float(F::kF8E3M4, "float8_e3m4", 3, 4, 3, true, NanStyle::kIeee, D::kU8),
    Float(F::kF8E4M3B11FNUZ, "float8_e4m3b11fnuz", 4, 3, 11, false, NanStyle::kNegativeZero, D::kU8),
    E8M0(),
    Float(F::kF6E2M3FN, "float6_e2m3fn", 2, 3, 1, false, NanStyle::kNone, D::kU8),
    Float(F::kF6E3M2FN, "float6_e3m2fn", 3, 2, 3, false, NanStyle::kNone, D::kU8),
    kE2M1FN,
    Nf4(),
    Float(F::kBF16, "bfloat16", 8, 7, 127, true, NanStyle::kIeee, D::kBF16),
    Float(F::kF16, "float16", 5, 10, 15, true, NanStyle::kIeee, D::kF16),
    Float(F::kF32, "float32", 8, 23, 127, true, NanStyle::kIeee, D::kF32),
    Block(F::kMxfp8, "mxfp8", kE4M3FN, 32),
    Block(F::kMxfp8_16, "mxfp8_16", kE4M3FN, 16),
    Block(F::kMxfp4, "mxfp4", kE2M1FN, 32),
    Block(F::kNvfp4, "nvfp4", kE2M1FN, 16),
};

constexpr bool TableIsInOrder() {
  for (size_t i = 0; i < std::size(kTable); ++i) {
    if (static_cast<size_t>(kTable[i].format) != i) return false;
  }
  return true;
}
static_assert(TableIsInOrder());

// Spellings that follow from no rule.
constexpr struct {
  std::string_view alias;
  Format format;
} kAliases[] = {
    {"bf16", F::kBF16},     {"f16", F::kF16},        {"fp16", F::kF16},      {"half", F::kF16},
    {"f32", F::kF32},       {"fp32", F::kF32},       {"fp4", F::kF4E2M1FN},  {"float4", F::kF4E2M1FN},
    {"e2m1", F::kF4E2M1FN}, {"e8m0", F::kF8E8M0FNU}, {"e2m3", F::kF6E2M3FN}, {"e3m2", F::kF6E3M2FN},
};

std::string LowerCase(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c == '-') c = '_';
  }
  return lower;
}

// "float8_e4m3fn" has the core "e4m3fn"; empty for formats without one.
std::string_view CoreOf(const FormatInfo& info) {
  const bool small_float = info.kind == FormatKind::kFloat && info.bits <= 8 && info.block == 0;
  return small_float ? info.name.substr(info.name.find('_') + 1) : std::string_view();
}

bool Matches(const FormatInfo& info, std::string_view name) {
  if (name == info.name) return true;
  if (const std::string_view core = CoreOf(info); !core.empty()) {
    if (!name.ends_with(core)) return false;
    const std::string_view prefix = name.substr(0, name.size() - core.size());
    if (prefix.empty()) return true;
    for (std::string_view word : {"float", "fp", "f"}) {
      const std::string with_bits = fmt::format("{}{}", word, info.bits);
      if (prefix == with_bits || prefix == with_bits + "_") return true;
    }
    return false;
  }
  if (info.kind != FormatKind::kInteger) return false;
  if (!info.has_sign) return name == fmt::format("u{}", info.bits);
  return name == fmt::format("i{}", info.bits) || name == fmt::format("s{}", info.bits);
}

}  // namespace

const FormatInfo& Info(Format format) { return kTable[static_cast<size_t>(format)]; }

std::span<const FormatInfo> AllFormats() { return kTable; }

std::optional<Format> FindFormat(std::string_view name) {
  const std::string lower = LowerCase(name);
  for (const FormatInfo& info : kTable) {
    if (Matches(info, lower)) return info.format;
  }
  for (const auto& [alias, format] : kAliases) {
    if (lower == alias) return format;
  }
  return std::nullopt;
}

Format FormatByName(std::string_view name) {
  if (const std::optional<Format> format = FindFormat(name)) return *format;
  std::vector<std::string_view> known;
  for (const FormatInfo& info : kTable) known.push_back(info.name);
  // What the user wrote may be of any length; a long text is no misspelt name.
  const std::string_view shown = name.substr(0, 40);
  const std::vector<std::string> nearest = NearestNames(LowerCase(shown), known, 3);
  throw Error(ErrorCode::kUsage, fmt::format("'{}' is not a number format", shown),
              fmt::format("did you mean {}?\nknown: {}", fmt::join(nearest, ", "), fmt::join(known, " ")));
}

float SymmetricBound(Format format) {
  const FormatInfo& info = Info(format);
  if (info.symmetric_bound == 0.0f) {
    throw Error(ErrorCode::kUsage, fmt::format("{} is not a format to quantize to", info.name),
                "use an integer of at most 16 bits, a float of at most 8, or nf4");
  }
  return info.symmetric_bound;
}

Bounds AsymmetricBound(Format format) {
  const FormatInfo& info = Info(format);
  if (!info.asymmetric) {
    throw Error(ErrorCode::kUsage, fmt::format("{} does not support asymmetric quantization", info.name),
                "use int4, int8 or int16, or a symmetric calibration such as absmax");
  }
  return *info.asymmetric;
}

}  // namespace octavo
