// What happens to an exact integer sum on its way to memory, the same for int8 and int4 products: zero points, scales,
// tiles, bias, output type. Plain structs, included by instruction-set units.
//
// For output (m, n) and tile t of K, acc = sum over the tile of (a - row_zero) * (b - col_zero), exact in int32, then
//   part = (float(acc) * row_scale(m, t)) * col_scale(n, t)      each multiplication rounded, in this order
//   out  = part_0 + part_1 + … ascending, then + bias(n)
// A missing scale is no multiplication. No tile at all (K = 0 in tiles) gives 0.
#pragma once

#include <cstdint>

#include "octavo/kernels/view.h"

namespace octavo::kernels {

// One value per row (or column) and tile: data[index * stride + tile * tile_stride]. Stride 0 repeats a value. Null
// data: none. Columns may lie in panels of 16, so that a matrix-vector product reads the scales of many tiles in the
// order it meets them: data[(index / 16) * panel_stride + (index % 16) * stride + tile * tile_stride].
template <typename T>
struct ScaleView {
  const T* data = nullptr;
  int64_t stride = 1, tile_stride = 0;
  int64_t panel_stride = 0;  // 0: not in panels

  // Always inlined: no unit may end up with the code that another instruction set made of it.
  [[gnu::always_inline]] const T* From(int64_t index, int64_t tile) const {
    if (panel_stride == 0) return data + index * stride + tile * tile_stride;
    return data + index / 16 * panel_stride + index % 16 * stride + tile * tile_stride;
  }
  [[gnu::always_inline]] T at(int64_t index, int64_t tile) const { return *From(index, tile); }
};

enum class ScaleOrder : uint8_t { kRowThenColumn, kColumnThenRow };

// kBF16: the int32 sum is rounded to bf16 first, each product and the sum of tiles (taken in f32) once more, the bias
// added in bf16. The scales must be bf16 values.
enum class ScaleMath : uint8_t { kF32, kBF16 };

struct ScaleEpilogue {
  ScaleView<float> row_scale = {}, col_scale = {};
  ScaleOrder order = ScaleOrder::kRowThenColumn;
  ScaleMath math = ScaleMath::kF32;
  ScaleView<int8_t> row_zero = {}, col_zero = {};
  ScaleView<float> bias = {};  // per column, tile_stride unused
};

// Where the result goes: exactly one has data (or none when M or N is 0). bf16 is stored as its upper 16 bits.
// int32 takes the bare sum: no scales, tiles or bias.
struct IntOutput {
  MatrixView<int32_t> i32 = {};
  MatrixView<float> f32 = {};
  MatrixView<uint16_t> bf16 = {};
};

}  // namespace octavo::kernels
