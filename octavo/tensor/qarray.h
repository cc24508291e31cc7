// A quantized array: value ~= (qvalue - zero_point) * scale, each scale repeated over its tile. Made by quant/, kept by
// weights, residuals and caches. Logical axes, one code per element, never packed: int2 … int8 codes are i8, unsigned
// codes, fp8/fp4 bit patterns and nf4 indices u8, int16 codes i16. Here are data, invariants and shape operations;
// making and using the numbers is quant/.
#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/numerics/format.h"
#include "octavo/tensor/tensor.h"

namespace octavo {

struct QArray {
  Tensor qvalue, scale;
  std::optional<Tensor> zero_point;
  Format format = Format::kInt8;

  const Shape& shape() const { return qvalue.shape(); }
  int rank() const { return qvalue.rank(); }
  DType dtype() const { return scale.dtype(); }  // of the dequantized values
  bool is_meta() const { return qvalue.is_meta(); }
};

// Throws unless: qvalue has the storage dtype of the format; scale is bf16, f16, f32 or f64, of qvalue's rank, and its
// axes divide qvalue's; the same for the zero point, which has qvalue's dtype and the shape of the scale.
void Validate(std::string_view op, const QArray& array);

// How many elements of each axis share a scale: qvalue axis / scale axis.
std::vector<int64_t> TileShape(const QArray& array);

struct TiledAxis {
  int axis;
  int64_t tile;
  bool operator==(const TiledAxis&) const = default;
};
// The axes on which the scale has neither length 1 nor the full length.
std::vector<TiledAxis> TiledAxes(const QArray& array);

// "int8[4, 6] scale f32[4, 1]"
std::string ToString(const QArray& array);

// Shape operations: what happens to qvalue happens to scale and zero point.
QArray Permute(const QArray& array, std::span<const int> axes);
inline QArray Permute(const QArray& array, std::initializer_list<int> axes) {
  return Permute(array, std::span<const int>(axes.begin(), axes.size()));
}
QArray Transpose(const QArray& array);
QArray SwapAxes(const QArray& array, int a, int b);

// Possible when no new axis cuts through a tile: axes are grouped into the smallest runs of equal count, and in each
// run a scale must be whole, single, or vary only along the first axis and divide the first new one.
QArray Reshape(const QArray& array, std::span<const int64_t> dims);
inline QArray Reshape(const QArray& array, std::initializer_list<int64_t> dims) {
  return Reshape(array, std::span<const int64_t>(dims.begin(), dims.size()));
}

// Like Tensor::Index. A tiled axis takes a single index or the whole range; anything else is an error.
QArray Index(const QArray& array, std::span<const IndexItem> items);
inline QArray Index(const QArray& array, std::initializer_list<IndexItem> items) {
  return Index(array, std::span<const IndexItem>(items.begin(), items.size()));
}

// Repeats contiguously to `shape`; when it differs, scale and zero point become full-size too.
QArray RepeatTo(const QArray& array, const Shape& shape);

}  // namespace octavo
