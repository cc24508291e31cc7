#include "octavo/quant/noise.h"

#include <vector>

#include "octavo/base/error.h"
#include "octavo/numerics/format.h"

namespace octavo::quant {

Tensor MakeNoise(RngKey key, const Shape& shape, Rounding rounding, std::span<const int> axes) {
  if (rounding == Rounding::kNearest) ThrowUsage("MakeNoise: rounding to nearest has no noise");
  std::vector<int64_t> dims(static_cast<size_t>(shape.rank()), 1);
  for (int axis : axes) dims[static_cast<size_t>(CheckAxis("MakeNoise", axis, shape))] = shape.dim(axis);
  Tensor result = Tensor::Empty(Shape(dims), DType::kF32);
  uint64_t index = 0;
  for (float& value : result.MutableValues<float>()) {
    value = rounding == Rounding::kUniformNoise ? Uniform(key, index, -0.5f, 0.5f) : LowBitNoise(key.Bits8(index));
    ++index;
  }
  return result;
}

}  // namespace octavo::quant
