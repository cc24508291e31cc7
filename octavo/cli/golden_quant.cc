#include "octavo/cli/golden_quant.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "octavo/base/error.h"
#include "octavo/quant/quantize.h"

namespace octavo {
namespace {

using Json = nlohmann::json;

const Json& At(const Json& object, const std::string& key) {
  static const Json null;  // constant
  if (!object.is_object()) return null;
  const auto found = object.find(key);
  return found == object.end() ? null : *found;
}

std::string VersionOf(const GoldenCase& golden, const char* name) {
  const Json& text = At(At(golden.group().header(), "versions"), name);
  return text.is_string() ? text.get<std::string>() : "";
}

quant::Arithmetic ArithmeticOf(const GoldenCase& golden) {
  quant::Arithmetic arithmetic;
  const bool true_division = VersionOf(golden, "backend").find("true division") != std::string::npos;
  arithmetic.division = true_division ? quant::DivisionRule::kTrue : quant::DivisionRule::kReference;
  const bool wheel = VersionOf(golden, "qwix").find("wheel") != std::string::npos;
  arithmetic.mx_scale = wheel ? quant::MxScaleRule::kCeilLog2 : quant::MxScaleRule::kFloor;
  return arithmetic;
}

quant::TileSize ReadTile(const Json& value, const std::string& key) {
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number_float()) return value.get<double>();
  ThrowFile("args: {} is not a tile size", key);
}

// Codes that may be one apart where a quotient sits on a boundary.
Mismatch CompareCodes(const Tensor& expected, const Tensor& actual) {
  if (expected.dtype() != DType::kI8 || actual.dtype() != DType::kI8 || expected.shape() != actual.shape()) {
    return CompareBits(expected, actual);
  }
  const auto a = expected.ToVector<int8_t>(), b = actual.ToVector<int8_t>();
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::abs(a[i] - b[i]) > 1) return fmt::format("code {} is {}, expected {}", i, b[i], a[i]);
  }
  return std::nullopt;
}

}  // namespace

GoldenRun::GoldenRun(const GoldenCase& golden, ThreadPool& pool)
    : run_{pool, kernels::ChooseIsa().isa, workspace_, ArithmeticOf(golden), &macs_} {}

std::optional<Format> FormatArg(const Json& object, const std::string& key) {
  const Json& value = At(object, key);
  if (value.is_null()) return std::nullopt;
  if (!value.is_string()) ThrowFile("args: {} is not the name of a format", key);
  return FormatByName(value.get<std::string>());
}

std::optional<quant::TileSize> TileArg(const Json& object, const std::string& key) {
  const Json& value = At(object, key);
  if (value.is_null()) return std::nullopt;
  return ReadTile(value, key);
}

quant::Calibration CalibrationArg(const Json& object, const std::string& key) {
  const Json& value = At(object, key);
  if (value.is_null()) return {};
  if (!value.is_string()) ThrowFile("args: {} is not a calibration method", key);
  return quant::ParseCalibration(value.get<std::string>());
}

bool FlagArg(const Json& object, const std::string& key) {
  const Json& value = At(object, key);
  if (value.is_null()) return false;
  if (!value.is_boolean()) ThrowFile("args: {} is not true or false", key);
  return value.get<bool>();
}

std::vector<int> AxesArg(const Json& axes) {
  if (!axes.is_array()) ThrowFile("args: expected a list of axes");
  std::vector<int> result;
  for (const Json& axis : axes) {
    if (!axis.is_number_integer()) ThrowFile("args: expected a list of axes");
    result.push_back(axis.get<int>());
  }
  return result;
}

std::optional<DType> DTypeArg(const Json& name) {
  if (name.is_null()) return std::nullopt;
  if (name == "float32") return DType::kF32;
  if (name == "bfloat16") return DType::kBF16;
  if (name == "float16") return DType::kF16;
  if (name == "int32") return DType::kI32;
  ThrowFile("args: the dtype {} is not known", name.dump());
}

DotDims DotDimsArg(const Json& numbers) {
  const bool good = numbers.is_array() && numbers.size() == 2 && numbers[0].is_array() && numbers[0].size() == 2 &&
                    numbers[1].is_array() && numbers[1].size() == 2;
  if (!good) ThrowFile("args: dimension_numbers are not ((contract, contract), (batch, batch))");
  return {AxesArg(numbers[0][0]), AxesArg(numbers[0][1]), AxesArg(numbers[1][0]), AxesArg(numbers[1][1])};
}

quant::HowToQuantize HowArg(const Json& how) {
  ExpectKeys(how, {"qtype", "channelwise_axes", "tiled_axes", "calibration_method"});
  quant::HowToQuantize result;
  const auto format = FormatArg(how, "qtype");
  if (!format) ThrowFile("args: a qtype is missing");
  result.format = *format;
  for (int axis : AxesArg(At(how, "channelwise_axes"))) {
    // The reference matches axes by number and so ignores negative ones; we call them an error.
    if (axis >= 0) result.granularity.channelwise_axes.push_back(axis);
  }
  const Json& tiled = At(how, "tiled_axes");
  if (!tiled.is_object()) ThrowFile("args: tiled_axes is not an object");
  for (const auto& [axis, tile] : tiled.items()) {
    int number = 0;
    const auto [end, error] = std::from_chars(axis.data(), axis.data() + axis.size(), number);
    if (error != std::errc() || end != axis.data() + axis.size()) ThrowFile("args: '{}' is not an axis", axis);
    result.granularity.tiled_axes[number] = ReadTile(tile, "tiled_axes");
  }
  result.calibration = CalibrationArg(how, "calibration_method");
  return result;
}

RngKey KeyInput(const GoldenCase& golden, const std::string& name) {
  const Tensor key = golden.Input(name);
  if (key.dtype() != DType::kU32 || key.size() != 2) ThrowFile("the key is {}, expected u32[2]", key.ToString());
  const auto words = key.ToVector<uint32_t>();
  return {words[0], words[1]};
}

void ExpectKeys(const Json& object, std::initializer_list<std::string_view> known) {
  if (!object.is_object()) ThrowFile("args: expected an object, found {}", object.dump().substr(0, 100));
  for (const auto& [key, value] : object.items()) {
    if (std::find(known.begin(), known.end(), key) == known.end()) ThrowFile("args: '{}' is not known", key);
  }
}

void CheckOutput(const GoldenCase& golden, GoldenCheck& check, const std::string& name, const Tensor& actual) {
  if (!golden.uses_rms() || actual.dtype() != DType::kF32 || check.IsInformation(name)) {
    return check.Output(name, actual);
  }
  if (!golden.HasOutput(name)) return check.Output(name, actual);
  const Tensor expected = golden.Output(name);
  if (name.ends_with("scale") || name.starts_with("calib")) return check.Output(name, CompareUlps(expected, actual, 2));
  // Equal codes give results within 1e-6; one code that flipped moves everything built on it.
  check.Output(name, CompareToLargest(expected, actual, 1e-2));
}

void CheckArray(const GoldenCase& golden, GoldenCheck& check, const std::string& name, const QArray& array) {
  const std::string prefix = name.empty() ? "" : name + "_";
  const std::string codes = prefix + "qvalue";
  if (golden.HasOutput(codes)) {
    if (golden.uses_rms()) {
      check.Output(codes, CompareCodes(golden.Output(codes), array.qvalue));
    } else {
      check.Output(codes, array.qvalue);
    }
  }
  if (golden.HasOutput(prefix + "scale")) CheckOutput(golden, check, prefix + "scale", array.scale);
  if (golden.HasOutput(prefix + "zero_point")) {
    check.Output(prefix + "zero_point", array.zero_point ? *array.zero_point : Tensor());
  } else if (array.zero_point && golden.HasOutput(codes)) {
    check.Fail(fmt::format("{} has a zero point that the reference lacks", name));
  }
}

}  // namespace octavo
