// The epilogue of scale_epilogue.h for the AVX-512 units of the integer products: 16 columns are one register, the ones
// past the last column are masked off. Internal linkage throughout: included by *_avx512.cc and *_amx.cc only.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "octavo/kernels/int_block.h"
#include "octavo/kernels/transpose_avx512.h"

namespace octavo::kernels {
namespace {

inline constexpr int kTilePanels = 2;                             // panels of a register tile
inline constexpr int kTileColumns = kTilePanels * kPanelColumns;  // of the sums below
inline constexpr int kTileSums = kStripRowsAvx512 * kTileColumns;

// A missing scale is a multiplication by 1, a missing bias an addition of -0: neither changes a bit.
constexpr float kOne = 1.0f, kMinusZero = -0.0f;

inline __m512 RoundBF16(__m512 x) {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i lsb = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i up = _mm512_add_epi32(bits, _mm512_add_epi32(lsb, _mm512_set1_epi32(0x7FFF)));
  const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  const __m512i rounded = _mm512_mask_or_epi32(up, nan, bits, _mm512_set1_epi32(0x400000));
  return _mm512_castsi512_ps(_mm512_and_si512(rounded, _mm512_set1_epi32(static_cast<int>(0xFFFF0000))));
}

// 16 values of columns n … n + 15, the masked ones 0.
inline __m512 LoadColumns(const float* data, int64_t stride, __mmask16 inside) {
  if (stride == 1) return _mm512_maskz_loadu_ps(inside, data);
  if (stride == 0) return _mm512_set1_ps(*data);
  alignas(64) float values[kPanelColumns] = {};
  for (int c = 0; c < kPanelColumns; ++c) {
    if ((inside >> c & 1) != 0) values[c] = data[c * stride];
  }
  return _mm512_load_ps(values);
}

// Part of an output tile: `rows` rows from packed row `row` on, which is row `in_strip` of a strip of `strip_rows`.
struct TilePlace {
  int64_t row;
  int rows, in_strip, strip_rows;
  int64_t n;
};

template <ScaleMath kMath, ScaleOrder kOrder>
class TileEpilogue {
 public:
  explicit TileEpilogue(const IntBlock& block) : block_(block) {
    const ScaleEpilogue& e = block.epilogue;
    row_scale_ = e.row_scale.data != nullptr ? e.row_scale : ScaleView<float>{&kOne, 0, 0};
    col_scale_ = e.col_scale.data != nullptr ? e.col_scale : ScaleView<float>{&kOne, 0, 0};
    bias_ = e.bias.data != nullptr ? e.bias : ScaleView<float>{&kMinusZero, 0, 0};
    zeros_ = e.row_zero.data != nullptr || e.col_zero.data != nullptr;
    const IntOutput& out = block.out;
    const bool beside =
        out.i32.data != nullptr ? out.i32.col_stride == 1 : out.f32.data != nullptr && out.f32.col_stride == 1;
    plain_ = kMath == ScaleMath::kF32 && !zeros_ && block.tiles == 1 && beside;
  }

  // Whether a kernel may scale the tiles of K itself: f32 in the usual order, one scale per row, column scales
  // contiguous.
  bool fusible() const {
    return kMath == ScaleMath::kF32 && kOrder == ScaleOrder::kRowThenColumn && !zeros_ && row_scale_.tile_stride == 0 &&
           col_scale_.stride == 1 && block_.tiles > 1 && block_.out.i32.data == nullptr;
  }
  const float* ColScales(int64_t n) const { return col_scale_.From(n, 0); }
  int64_t col_tile_stride() const { return col_scale_.tile_stride; }
  float RowScale(int64_t row) const { return row_scale_.at(block_.first_row + row, 0); }
  // Where the constants of a row are, of those that lie strip by strip.
  int64_t RowAt(const TilePlace& at, int64_t tile) const {
    return (at.row - at.in_strip) * block_.tiles + tile * at.strip_rows + at.in_strip;
  }
  const int32_t* RowAdds(const TilePlace& at, int64_t tile) const { return block_.row_add + RowAt(at, tile); }
  __mmask16 Inside(int64_t n) const { return FirstLanes(block_.cols - n); }

  // Takes the raw sums of tile `tile` of K for 16 columns, acc[r * stride]: adds them to sum[r * stride], or finishes
  // and stores when the tile is the last.
  void Take(const TilePlace& at, int64_t tile, const int32_t* acc, float* sum, int64_t stride) const {
    if (plain_) return TakePlain(at, acc, stride);
    const __mmask16 inside = Inside(at.n);
    const bool last = tile + 1 == block_.tiles;
    const int32_t* row_add = block_.row_add == nullptr ? nullptr : RowAdds(at, tile);
    const __m512 col = LoadColumns(col_scale_.From(at.n, tile), col_scale_.stride, inside);
    const __m512 bias = last ? LoadColumns(bias_.From(at.n, 0), bias_.stride, inside) : _mm512_setzero_ps();
    const float* scales = row_scale_.From(block_.first_row + at.row, tile);
    for (int r = 0; r < at.rows; ++r) {
      __m512i exact = _mm512_loadu_si512(acc + r * stride);
      if (row_add != nullptr) exact = _mm512_add_epi32(exact, _mm512_set1_epi32(row_add[r]));
      if (zeros_) exact = _mm512_sub_epi32(exact, OfZeros(at, r, tile, inside));
      if (block_.out.i32.data != nullptr) {
        StoreI32(exact, at.row + r, at.n, inside);
        continue;
      }
      __m512 value = Scale(exact, _mm512_set1_ps(scales[r * row_scale_.stride]), col);
      if (tile > 0) value = _mm512_add_ps(_mm512_loadu_ps(sum + r * stride), value);
      if (last) {
        Store(Finish(value, bias), at.row + r, at.n, inside);
      } else {
        _mm512_storeu_ps(sum + r * stride, value);
      }
    }
  }

  // The end for sums of tiles that a kernel has scaled and added.
  void FinishSum(__m512 sum, int64_t row, int64_t n) const {
    const __mmask16 inside = Inside(n);
    Store(Finish(sum, LoadColumns(bias_.From(n, 0), bias_.stride, inside)), row, n, inside);
  }

 private:
  // One tile of K, no zero points, contiguous i32 or f32 output: most products, whose epilogue must not outlast the
  // sums.
  void TakePlain(const TilePlace& at, const int32_t* acc, int64_t stride) const {
    const __mmask16 inside = Inside(at.n);
    const int32_t none = 0, *row_add = block_.row_add == nullptr ? &none : RowAdds(at, 0);
    const int64_t add_step = block_.row_add == nullptr ? 0 : 1, row = block_.first_row + at.row;
    if (block_.out.i32.data != nullptr) {
      int32_t* to = block_.out.i32.data + row * block_.out.i32.row_stride + at.n;
      for (int r = 0; r < at.rows; ++r, to += block_.out.i32.row_stride) {
        const __m512i add = _mm512_set1_epi32(row_add[r * add_step]);
        _mm512_mask_storeu_epi32(to, inside, _mm512_add_epi32(_mm512_loadu_si512(acc + r * stride), add));
      }
      return;
    }
    const __m512 col = LoadColumns(col_scale_.From(at.n, 0), col_scale_.stride, inside);
    const __m512 bias = LoadColumns(bias_.From(at.n, 0), bias_.stride, inside);
    const float* scales = row_scale_.From(row, 0);
    float* to = block_.out.f32.data + row * block_.out.f32.row_stride + at.n;
    for (int r = 0; r < at.rows; ++r, to += block_.out.f32.row_stride) {
      const __m512i exact =
          _mm512_add_epi32(_mm512_loadu_si512(acc + r * stride), _mm512_set1_epi32(row_add[r * add_step]));
      const __m512 value = Scale(exact, _mm512_set1_ps(scales[r * row_scale_.stride]), col);
      _mm512_mask_storeu_ps(to, inside, Finish(value, bias));
    }
  }

  static __m512 Round(__m512 x) { return kMath == ScaleMath::kBF16 ? RoundBF16(x) : x; }

  static __m512 Scale(__m512i sum, __m512 row, __m512 col) {
    __m512 value = Round(_mm512_cvtepi32_ps(sum));
    value = Round(_mm512_mul_ps(value, kOrder == ScaleOrder::kRowThenColumn ? row : col));
    return Round(_mm512_mul_ps(value, kOrder == ScaleOrder::kRowThenColumn ? col : row));
  }

  static __m512 Finish(__m512 value, __m512 bias) { return Round(_mm512_add_ps(Round(value), bias)); }

  // What sum a b holds more than sum (a - row zero) (b - column zero).
  [[gnu::noinline]] __m512i OfZeros(const TilePlace& at, int r, int64_t tile, __mmask16 inside) const {
    const ScaleEpilogue& e = block_.epilogue;
    const int64_t left = block_.k - tile * block_.tile_length;
    const int32_t steps = static_cast<int32_t>(left < block_.tile_length ? left : block_.tile_length);
    __m512i more = _mm512_setzero_si512();
    const int32_t zero = e.row_zero.data == nullptr ? 0 : e.row_zero.at(block_.first_row + at.row + r, tile);
    if (e.row_zero.data != nullptr) {
      const __m512i col_sum = _mm512_loadu_si512(block_.col_sum + tile * block_.padded_cols() + at.n);
      more = _mm512_mullo_epi32(_mm512_set1_epi32(zero), col_sum);
    }
    if (e.col_zero.data != nullptr) {
      const uint32_t rest = static_cast<uint32_t>(block_.row_sum[RowAt(at, tile) + r]) -
                            static_cast<uint32_t>(steps) * static_cast<uint32_t>(zero);
      alignas(64) int32_t values[kPanelColumns] = {};
      for (int c = 0; c < kPanelColumns; ++c) {
        if ((inside >> c & 1) != 0) values[c] = e.col_zero.at(at.n + c, tile);
      }
      const __m512i factor = _mm512_set1_epi32(static_cast<int32_t>(rest));
      more = _mm512_add_epi32(more, _mm512_mullo_epi32(factor, _mm512_load_si512(values)));
    }
    return more;
  }

  void StoreI32(__m512i value, int64_t row, int64_t n, __mmask16 inside) const {
    const MatrixView<int32_t>& out = block_.out.i32;
    int32_t* to = out.data + (block_.first_row + row) * out.row_stride + n * out.col_stride;
    if (out.col_stride == 1) return _mm512_mask_storeu_epi32(to, inside, value);
    alignas(64) int32_t values[kPanelColumns];
    _mm512_store_si512(values, value);
    for (int c = 0; c < kPanelColumns; ++c) {
      if ((inside >> c & 1) != 0) to[c * out.col_stride] = values[c];
    }
  }

  void Store(__m512 value, int64_t row, int64_t n, __mmask16 inside) const {
    if (block_.out.f32.data != nullptr) {
      const MatrixView<float>& out = block_.out.f32;
      float* to = out.data + (block_.first_row + row) * out.row_stride + n * out.col_stride;
      if (out.col_stride == 1) return _mm512_mask_storeu_ps(to, inside, value);
      alignas(64) float values[kPanelColumns];
      _mm512_store_ps(values, value);
      for (int c = 0; c < kPanelColumns; ++c) {
        if ((inside >> c & 1) != 0) to[c * out.col_stride] = values[c];
      }
      return;
    }
    const MatrixView<uint16_t>& out = block_.out.bf16;
    uint16_t* to = out.data + (block_.first_row + row) * out.row_stride + n * out.col_stride;
    const __m256i upper = _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(RoundBF16(value)), 16));
    if (out.col_stride == 1) return _mm256_mask_storeu_epi16(to, inside, upper);
    alignas(32) uint16_t values[kPanelColumns];
    _mm256_store_si256(reinterpret_cast<__m256i*>(values), upper);
    for (int c = 0; c < kPanelColumns; ++c) {
      if ((inside >> c & 1) != 0) to[c * out.col_stride] = values[c];
    }
  }

  const IntBlock& block_;
  ScaleView<float> row_scale_, col_scale_, bias_;
  bool zeros_, plain_;
};

// Calls run<TileEpilogue<…>>() with the epilogue of a block.
template <typename Run>
void WithEpilogue(const IntBlock& block, const Run& run) {
  constexpr auto kRow = ScaleOrder::kRowThenColumn, kColumn = ScaleOrder::kColumnThenRow;
  const bool row_first = block.epilogue.order == kRow;
  if (block.epilogue.math == ScaleMath::kF32) {
    if (row_first) return run.template operator()<TileEpilogue<ScaleMath::kF32, kRow>>();
    return run.template operator()<TileEpilogue<ScaleMath::kF32, kColumn>>();
  }
  if (row_first) return run.template operator()<TileEpilogue<ScaleMath::kBF16, kRow>>();
  return run.template operator()<TileEpilogue<ScaleMath::kBF16, kColumn>>();
}

}  // namespace
}  // namespace octavo::kernels
