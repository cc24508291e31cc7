#include "octavo/quant/how_to_quantize.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>

#include "octavo/base/error.h"

namespace octavo::quant {
namespace {

std::string Lower(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return lower;
}

std::string_view Trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

std::optional<double> ParseNumber(std::string_view text) {
  text = Trim(text);
  if (!text.empty() && text.front() == '+') text.remove_prefix(1);
  double value;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

constexpr std::string_view kForms =
    "possible: absmax, absmax,f, minmax, minmax,f, rms,f, fixed,a (-a … a), fixed,low,high";

[[noreturn]] void Refuse(std::string_view text, std::string_view why) {
  throw Error(ErrorCode::kUsage, fmt::format("calibration method '{}': {}", text, why), std::string(kForms));
}

double OnePositive(std::string_view text, const std::vector<double>& numbers) {
  if (numbers.size() > 1) Refuse(text, fmt::format("{} numbers, at most one is possible", numbers.size()));
  if (numbers.empty()) return 1.0;
  if (numbers[0] <= 0) Refuse(text, "the factor must be positive");
  return numbers[0];
}

Calibration ParseFixed(std::string_view text, const std::vector<double>& numbers) {
  if (numbers.size() != 1 && numbers.size() != 2) {
    Refuse(text, fmt::format("{} numbers, one or two are needed", numbers.size()));
  }
  Calibration result{CalibrationMethod::kFixed};
  result.high = numbers.back();
  result.low = numbers.size() == 1 ? -numbers[0] : numbers[0];
  if (result.low > 0 || result.high < 0 || result.low >= result.high) {
    Refuse(text, "the range must contain 0 and must not be empty");
  }
  return result;
}

// Block formats fix their tile.
void CheckBlocks(std::string_view op, const HowToQuantize& how) {
  const FormatInfo& info = Info(how.format);
  if (info.block == 0) return;
  if (how.granularity.tiled_axes.empty()) {
    ThrowUsage("{}: format {} needs a tiled axis with tiles of {}, none is given", op, info.name, info.block);
  }
  for (const auto& [axis, tile] : how.granularity.tiled_axes) {
    const int64_t* elements = std::get_if<int64_t>(&tile);
    if (elements != nullptr && *elements == info.block) continue;
    ThrowUsage("{}: format {} requires tiles of {}, axis {} has {}", op, info.name, info.block, axis, ToString(tile));
  }
}

}  // namespace

int64_t TileElements(TileSize tile, int64_t dim) {
  if (const int64_t* elements = std::get_if<int64_t>(&tile)) return *elements;
  return static_cast<int64_t>(std::nearbyint(static_cast<double>(dim) * std::get<double>(tile)));
}

std::string ToString(TileSize tile) {
  if (const int64_t* elements = std::get_if<int64_t>(&tile)) return fmt::format("{}", *elements);
  return fmt::format("fraction {}", std::get<double>(tile));
}

Calibration ParseCalibration(std::string_view text) {
  const std::string lower = Lower(text);
  std::string_view rest = lower;
  auto comma = rest.find(',');
  const std::string_view name = Trim(rest.substr(0, comma));
  std::vector<double> numbers;
  while (comma != std::string_view::npos) {
    rest.remove_prefix(comma + 1);
    comma = rest.find(',');
    const std::string_view word = rest.substr(0, comma);
    auto number = ParseNumber(word);
    if (!number) Refuse(text, fmt::format("'{}' is not a number", word));
    numbers.push_back(*number);
  }
  if (name == "absmax") return {CalibrationMethod::kAbsMax, OnePositive(text, numbers)};
  if (name == "minmax") return {CalibrationMethod::kMinMax, OnePositive(text, numbers)};
  if (name == "rms") {
    if (numbers.empty()) Refuse(text, "rms needs a factor");
    return {CalibrationMethod::kRms, OnePositive(text, numbers)};
  }
  if (name == "fixed") return ParseFixed(text, numbers);
  Refuse(text, fmt::format("'{}' is not a method", name));
}

std::string ToString(const Calibration& calibration) {
  switch (calibration.method) {
    case CalibrationMethod::kAbsMax:
      return calibration.factor == 1.0 ? "absmax" : fmt::format("absmax,{}", calibration.factor);
    case CalibrationMethod::kMinMax:
      return calibration.factor == 1.0 ? "minmax" : fmt::format("minmax,{}", calibration.factor);
    case CalibrationMethod::kRms:
      return fmt::format("rms,{}", calibration.factor);
    case CalibrationMethod::kFixed:
      break;
  }
  if (calibration.low == -calibration.high) return fmt::format("fixed,{}", calibration.high);
  return fmt::format("fixed,{},{}", calibration.low, calibration.high);
}

Rounding ParseRounding(std::string_view text) {
  if (text.empty() || text == "nearest") return Rounding::kNearest;
  if (text == "uniform") return Rounding::kUniformNoise;
  if (text == "low_bit_uniform") return Rounding::kLowBitNoise;
  ThrowUsage("stochastic rounding '{}': possible are uniform, low_bit_uniform, nearest", text);
}

Shape ScaleShape(std::string_view op, const Shape& shape, const HowToQuantize& how) {
  CheckBlocks(op, how);
  std::vector<int64_t> dims(static_cast<size_t>(shape.rank()), 1);
  std::vector<bool> named(dims.size(), false);
  auto take = [&](int axis) {
    if (axis < 0 || axis >= shape.rank())
      ThrowUsage("{}: axis {} of {}, which has {} axes", op, axis, shape, shape.rank());
    const auto a = static_cast<size_t>(axis);
    if (named[a]) ThrowUsage("{}: axis {} of {} is named twice; it is channelwise or tiled, once", op, axis, shape);
    named[a] = true;
    return a;
  };
  for (int axis : how.granularity.channelwise_axes) {
    const size_t a = take(axis);
    dims[a] = shape[axis];
  }
  for (const auto& [axis, tile] : how.granularity.tiled_axes) {
    const size_t a = take(axis);
    const int64_t elements = TileElements(tile, shape[axis]);
    if (elements <= 0 || shape[axis] % elements != 0) {
      ThrowUsage("{}: {} cannot be tiled by {} on axis {}: {} is no multiple of it", op, shape, ToString(tile), axis,
                 shape[axis]);
    }
    dims[a] = shape[axis] / elements;
  }
  return Shape(dims);
}

}  // namespace octavo::quant
