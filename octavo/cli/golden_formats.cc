// Kinds of cases about number formats: tables of codes, ranges, casts by three libraries, Qwix's convert_to and bounds.
#include <cmath>
#include <nlohmann/json.hpp>

#include "octavo/base/error.h"
#include "octavo/cli/golden.h"
#include "octavo/numerics/format.h"
#include "octavo/numerics/half.h"

namespace octavo {
namespace {

using Json = nlohmann::json;

// The elements of a tensor of float dtype, widened exactly.
std::vector<float> Floats(const Tensor& tensor) {
  if (tensor.dtype() == DType::kF32) return tensor.ToVector<float>();
  if (tensor.dtype() != DType::kBF16 && tensor.dtype() != DType::kF16) {
    ThrowFile("expected f32, bf16 or f16, found {}", tensor.ToString());
  }
  std::vector<float> values;
  for (const uint16_t bits : tensor.ToVector<uint16_t>()) {
    values.push_back(tensor.dtype() == DType::kBF16 ? BF16ToF32(bits) : F16ToF32(bits));
  }
  return values;
}

// Codes as unsigned words, whatever integer they are stored in.
std::vector<uint32_t> Codes(const Tensor& tensor) {
  std::vector<uint32_t> codes;
  if (tensor.dtype() == DType::kU8) {
    for (const uint8_t code : tensor.ToVector<uint8_t>()) codes.push_back(code);
  } else if (tensor.dtype() == DType::kU16) {
    for (const uint16_t code : tensor.ToVector<uint16_t>()) codes.push_back(code);
  } else if (tensor.dtype() == DType::kI8) {
    for (const int8_t code : tensor.ToVector<int8_t>()) codes.push_back(static_cast<uint32_t>(code));
  } else {
    ThrowFile("expected codes in u8, i8 or u16, found {}", tensor.ToString());
  }
  return codes;
}

// The low bytes of each word, as the codes are stored: i8 for int4, u8 for float8, u16 for bfloat16 …
Tensor StoreCodes(const std::vector<uint32_t>& codes, const Shape& shape, DType dtype) {
  if (IsFloat(dtype) || dtype == DType::kBool) ThrowFile("codes cannot be stored in {}", NameOf(dtype));
  Tensor tensor = Tensor::Empty(shape, dtype);
  const size_t size = static_cast<size_t>(SizeOf(dtype));
  std::byte* at = tensor.MutableRawData();
  for (const uint32_t code : codes) {
    const int64_t wide = static_cast<int32_t>(code);  // sign-extended for i64
    std::memcpy(at, &wide, size);
    at += size;
  }
  return tensor;
}

Format NamedFormat(const std::optional<std::string>& name, const GoldenCase& golden) {
  if (!name) ThrowFile("no format in the call '{}'", golden.call());
  return FormatByName(*name);
}

// --- code -> value -------------------------------------------------------------------------------------------------

// "ml_dtypes.FORMAT: view(…", "view(… codes as FORMAT)…", "qwix numerics.FORMAT_to_fp(…".
std::optional<std::string> TableFormat(const GoldenCase& golden) {
  const std::string_view call = golden.call();
  if (call.starts_with("ml_dtypes.") && call.find(": view(") != std::string_view::npos) {
    return Between(call, "ml_dtypes.", ":");
  }
  if (call.starts_with("view(")) return Between(call, " codes as ", ")");
  if (call.starts_with("qwix numerics.")) return Between(call, "qwix numerics.", "_to_fp(");
  return std::nullopt;
}

bool IsTable(const GoldenCase& golden) { return golden.HasInput("codes") && TableFormat(golden).has_value(); }

// The limits that the library states for the format, where the case has them.
void CheckLimits(const GoldenCase& golden, const FormatInfo& info, GoldenCheck& check) {
  const Json& limits = golden.Field("finfo");
  if (!limits.is_object()) return;
  const bool no_zero = !info.has_sign;  // e8m0: its smallest number counts as normal and as subnormal
  const std::pair<std::string_view, double> ours[] = {
      {"max", info.max_value},
      {"min", no_zero ? std::ldexp(1.0, -info.bias) : info.min_value},
      {"smallest_normal", std::ldexp(1.0, no_zero ? -info.bias : 1 - info.bias)},
      {"smallest_subnormal", std::ldexp(1.0, no_zero ? -info.bias : 1 - info.bias - info.mantissa_bits)},
  };
  for (const auto& [key, expected] : limits.items()) {
    const auto found =
        std::find_if(std::begin(ours), std::end(ours), [&name = key](const auto& one) { return one.first == name; });
    if (found == std::end(ours) || !expected.is_number()) {
      check.Fail(fmt::format("finfo has '{}', which is not known", key));
    } else if (expected.get<double>() != found->second) {
      check.Fail(fmt::format("finfo {}: expected {}, found {}", key, expected.get<double>(), found->second));
    }
  }
}

void RunTable(const GoldenCase& golden, ThreadPool&, GoldenCheck& check) {
  const Format format = NamedFormat(TableFormat(golden), golden);
  const Tensor codes = golden.Input("codes");
  std::vector<float> values;
  for (const uint32_t code : Codes(codes)) values.push_back(Decode(format, code));
  check.Output("values", Tensor::FromValues(codes.shape(), DType::kF32, values));
  CheckLimits(golden, Info(format), check);
}

// --- ranges of integers ----------------------------------------------------------------------------------------------

bool IsRange(const GoldenCase& golden) { return golden.call().starts_with("ml_dtypes.iinfo("); }

void RunRange(const GoldenCase& golden, ThreadPool&, GoldenCheck& check) {
  const FormatInfo& info = Info(NamedFormat(Between(golden.call(), "ml_dtypes.iinfo(", ")"), golden));
  check.Output("range", Tensor::FromValues(Shape{2}, DType::kI32, std::vector<int32_t>{info.qmin, info.qmax}));
}

// --- value -> code by casts ------------------------------------------------------------------------------------------

bool IsCast(const GoldenCase& golden) {
  return golden.HasInput("x") && golden.call().find("x.astype(") != std::string_view::npos;
}

// Which library an output is from is in its name; how it casts is the difference between them.
std::optional<uint32_t> CastAs(const std::string& output, Format format, float value, DType input) {
  if (output == "ml_dtypes") return Encode(format, value, OverflowPolicy::kMlDtypes);
  if (output.starts_with("xla_")) return Encode(format, value, OverflowPolicy::kCast);
  if (output == "qwix_convert_to") return ConvertTo(format, value, input);
  return std::nullopt;
}

void RunCast(const GoldenCase& golden, ThreadPool&, GoldenCheck& check) {
  const Format format = NamedFormat(Between(golden.call(), "x.astype(", ")"), golden);
  const Tensor x = golden.Input("x");
  const std::vector<float> values = Floats(x);
  for (const auto& [output, tensor] : golden.outputs()) {
    std::vector<uint32_t> codes;
    for (const float value : values) {
      const std::optional<uint32_t> code = CastAs(output, format, value, x.dtype());
      if (!code) return check.Fail(fmt::format("output '{}' is of a library that is not known", output));
      codes.push_back(*code);
    }
    check.Output(output, StoreCodes(codes, x.shape(), golden.StoredOutput(output).dtype), format);
  }
}

// --- Qwix's convert_to -----------------------------------------------------------------------------------------------

bool IsConvertTo(const GoldenCase& golden) { return golden.call().starts_with("qwix numerics.convert_to(x, '"); }

void RunConvertTo(const GoldenCase& golden, ThreadPool&, GoldenCheck& check) {
  const Format format = NamedFormat(Between(golden.call(), "convert_to(x, '", "'"), golden);
  const Tensor x = golden.Input("x");
  const std::vector<float> values = Floats(x);
  std::vector<float> noise;
  if (golden.HasInput("noise")) noise = Floats(golden.Input("noise"));
  if (!noise.empty() && noise.size() != values.size()) ThrowFile("the noise has another size than x");
  std::vector<uint32_t> codes;
  for (size_t i = 0; i < values.size(); ++i) {
    codes.push_back(
        ConvertTo(format, values[i], x.dtype(), noise.empty() ? std::nullopt : std::optional<float>(noise[i])));
  }
  check.Output("q", StoreCodes(codes, x.shape(), golden.StoredOutput("q").dtype), format);
}

// --- bounds ----------------------------------------------------------------------------------------------------------

bool IsBounds(const GoldenCase& golden) {
  return golden.call().starts_with("qwix numerics.get_symmetric_bound") && golden.Field("results").is_object();
}

// The bound of "FORMAT.sym" or "FORMAT.asym" as the index writes it; a text stands for an error.
Json BoundOf(std::string_view format_name, std::string_view which) {
  try {
    const Format format = FormatByName(format_name);
    if (which == "sym") return SymmetricBound(format);
    const Bounds bounds = AsymmetricBound(format);
    return Json::array({bounds.min, bounds.max});
  } catch (const Error& error) {
    return error.message();
  }
}

void RunBounds(const GoldenCase& golden, ThreadPool&, GoldenCheck& check) {
  check.ResultsChecked();
  for (const auto& [key, expected] : golden.Field("results").items()) {
    const size_t dot = key.rfind('.');
    const std::string which = dot == std::string::npos ? "" : key.substr(dot + 1);
    if (which != "sym" && which != "asym") {
      check.Fail(fmt::format("results has '{}', which is not known", key));
      continue;
    }
    const Json ours = BoundOf(std::string_view(key).substr(0, dot), which);
    const bool equal = expected.is_string() ? ours.is_string() : ours == expected;
    if (!equal) check.Fail(fmt::format("{}: expected {}, found {}", key, expected.dump(), ours.dump()));
  }
}

}  // namespace

std::vector<GoldenKind> FormatKinds() {
  return {
      {"table of codes", IsTable, RunTable},      {"range of an integer", IsRange, RunRange},
      {"convert_to", IsConvertTo, RunConvertTo},  {"cast", IsCast, RunCast},
      {"bounds of formats", IsBounds, RunBounds},
  };
}

}  // namespace octavo
