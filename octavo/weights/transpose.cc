#include "octavo/weights/transpose.h"

#include <algorithm>
#include <cstdint>

#include "octavo/base/check.h"

namespace octavo::weights {
namespace {

constexpr int64_t kTile = 32;

template <typename T>
void Turn(const Tensor& from, Tensor& to) {
  const int64_t rows = from.dim(0), columns = from.dim(1);
  const auto* in = reinterpret_cast<const T*>(from.RawData());
  auto* out = reinterpret_cast<T*>(to.MutableRawData());
  // A strip of the result at a time, so that its lines are written whole while they are in the cache.
  for (int64_t c0 = 0; c0 < columns; c0 += kTile) {
    const int64_t c1 = std::min(columns, c0 + kTile);
    for (int64_t r0 = 0; r0 < rows; r0 += kTile) {
      const int64_t r1 = std::min(rows, r0 + kTile);
      for (int64_t c = c0; c < c1; ++c) {
        for (int64_t r = r0; r < r1; ++r) out[c * rows + r] = in[r * columns + c];
      }
    }
  }
}

}  // namespace

Tensor Transposed(const Tensor& matrix) {
  OCTAVO_CHECK(matrix.rank() == 2);
  const Tensor from = matrix.Contiguous();
  Tensor to = Tensor::Empty(Shape{from.dim(1), from.dim(0)}, from.dtype());
  switch (SizeOf(from.dtype())) {
    case 1:
      Turn<uint8_t>(from, to);
      break;
    case 2:
      Turn<uint16_t>(from, to);
      break;
    case 4:
      Turn<uint32_t>(from, to);
      break;
    default:
      Turn<uint64_t>(from, to);
  }
  return to;
}

}  // namespace octavo::weights
