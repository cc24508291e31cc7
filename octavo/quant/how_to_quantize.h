// How one array is quantized: number format, which elements share a scale, how the range is found, how it is rounded.
// Plain data, written in rules and recipes, read by the functions of quantize.h.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "octavo/numerics/format.h"
#include "octavo/tensor/shape.h"

namespace octavo::quant {

// An integer is the number of elements that share a scale; a fraction is 1 / (number of tiles). 1 means a scale for
// each element, 1.0 one scale for the whole axis.
using TileSize = std::variant<int64_t, double>;
// Elements per tile on an axis of length `dim`: a fraction gives round-half-even(dim * fraction).
int64_t TileElements(TileSize tile, int64_t dim);
std::string ToString(TileSize tile);

// Axes that are in neither list share one scale over their whole length.
struct Granularity {
  std::vector<int> channelwise_axes;  // a scale for each position
  std::map<int, TileSize> tiled_axes;
};

enum class CalibrationMethod : uint8_t { kAbsMax, kMinMax, kRms, kFixed };

// The range that is mapped to the range of the format.
struct Calibration {
  CalibrationMethod method = CalibrationMethod::kAbsMax;
  double factor = 1.0;       // absmax, minmax, rms; 1.0 is no multiplication for the first two
  double low = 0, high = 0;  // fixed

  bool operator==(const Calibration&) const = default;
};

// "absmax", "absmax,0.9", "minmax", "minmax,0.9", "rms,7", "fixed,3", "fixed,-1,2"; any letter case. Anything else is a
// usage error that names what is wrong.
Calibration ParseCalibration(std::string_view text);
std::string ToString(const Calibration& calibration);

enum class Rounding : uint8_t { kNearest, kUniformNoise, kLowBitNoise };
Rounding ParseRounding(std::string_view text);  // "" or "nearest", "uniform", "low_bit_uniform"

struct HowToQuantize {
  Format format = Format::kInt8;
  Granularity granularity;
  Calibration calibration;
  Rounding rounding = Rounding::kNearest;
  std::vector<int> noise_axes = {0};  // the noise varies along these axes and is shared along the others
};

// The shape of the scales of an array. Errors: an axis that does not exist or is listed twice, a tile that does not
// divide its axis, a block format whose tiles are not its block. `op` begins the text.
Shape ScaleShape(std::string_view op, const Shape& shape, const HowToQuantize& how);

}  // namespace octavo::quant
