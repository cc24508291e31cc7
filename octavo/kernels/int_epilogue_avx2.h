// The epilogue of scale_epilogue.h on 16 columns at once, and the loop over a rectangle of micro-tiles, for the AVX2
// units of the integer products. Internal linkage throughout: included by *_avx2.cc only.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "octavo/kernels/int_block.h"
#include "octavo/kernels/round_bf16_avx2.h"

namespace octavo::kernels {
namespace {

// What a micro-kernel writes and the epilogue reads, in one piece: a store whose address equals a load's modulo 4 kB
// would hold the load back, and here none can.
struct alignas(64) TileScratch {
  uint8_t nibble_mask[32];
  int16_t ones[16];
  int32_t zeros[6 * 16];
  int32_t acc[6 * 16];
  float sum[6 * 16];
  float row_scale[8];
};

struct Pair {
  __m256 lo, hi;
};
struct PairI {
  __m256i lo, hi;
};

// 16 values of columns n … n + 15, the ones past the last column 0.
inline Pair LoadColumns(const float* data, int64_t stride, int64_t valid) {
  if (stride == 1 && valid >= kPanelColumns) return {_mm256_loadu_ps(data), _mm256_loadu_ps(data + 8)};
  if (stride == 0) return {_mm256_set1_ps(*data), _mm256_set1_ps(*data)};
  alignas(32) float values[kPanelColumns] = {};
  for (int64_t c = 0; c < valid && c < kPanelColumns; ++c) values[c] = data[c * stride];
  return {_mm256_load_ps(values), _mm256_load_ps(values + 8)};
}

inline PairI LoadZeros(const ScaleView<int8_t>& zero, int64_t n, int64_t tile, int64_t valid) {
  alignas(32) int32_t values[kPanelColumns] = {};
  for (int64_t c = 0; c < valid && c < kPanelColumns; ++c) values[c] = zero.at(n + c, tile);
  return {_mm256_load_si256(reinterpret_cast<const __m256i*>(values)),
          _mm256_load_si256(reinterpret_cast<const __m256i*>(values + 8))};
}

inline PairI LoadInts(const int32_t* data) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(data)),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data + 8))};
}

// A missing scale is a multiplication by 1, a missing bias an addition of -0: neither changes a bit.
constexpr float kOne = 1.0f, kMinusZero = -0.0f;

// Where the output tile is: `row` counts from the first packed row, `rows` is the height of its strip.
struct TilePlace {
  int64_t row;
  int rows;
  int64_t n;
};

template <int kRows, ScaleMath kMath, ScaleOrder kOrder>
class TileEpilogue {
 public:
  TileEpilogue(const IntBlock& block, TileScratch& scratch) : block_(block), scratch_(scratch) {
    const ScaleEpilogue& e = block.epilogue;
    row_scale_ = e.row_scale.data != nullptr ? e.row_scale : ScaleView<float>{&kOne, 0, 0};
    col_scale_ = e.col_scale.data != nullptr ? e.col_scale : ScaleView<float>{&kOne, 0, 0};
    bias_ = e.bias.data != nullptr ? e.bias : ScaleView<float>{&kMinusZero, 0, 0};
    zeros_ = e.row_zero.data != nullptr || e.col_zero.data != nullptr;
    plain_ = !zeros_ && block.out.f32.data != nullptr && block.out.f32.col_stride == 1;
  }

  // Whether tiles of 16 columns may go through the functions without branches: StorePlain for one tile of K;
  // ClearPlain, AddPlain for each, FinishPlain for more.
  bool plain() const { return plain_; }
  // Whether a micro-kernel may also scale the tiles itself: one scale per row, column scales contiguous.
  bool fusible() const {
    return plain_ && kMath == ScaleMath::kF32 && kOrder == ScaleOrder::kRowThenColumn && row_scale_.tile_stride == 0 &&
           col_scale_.stride == 1 && block_.col_add == nullptr && block_.tiles > 1;
  }
  const float* ColScales(int64_t n) const { return col_scale_.From(n, 0); }
  int64_t col_tile_stride() const { return col_scale_.tile_stride; }
  void GatherRowScales(int64_t row, int rows) {
    for (int r = 0; r < rows; ++r) scratch_.row_scale[r] = row_scale_.at(block_.first_row + row + r, 0);
  }

  void StorePlain(const TilePlace& at) {
    const Pair bias = LoadColumns(bias_.From(at.n, 0), bias_.stride, kPanelColumns);
    const int64_t stride = block_.out.f32.row_stride;
    float* to = block_.out.f32.data + (block_.first_row + at.row) * stride + at.n;
    ForRows(at, 0, [&](int r, const Pair& value) {
      _mm256_storeu_ps(to + r * stride, Finish(value.lo, bias.lo));
      _mm256_storeu_ps(to + r * stride + 8, Finish(value.hi, bias.hi));
    });
  }

  // -0 is what an addition does not see.
  void ClearPlain(int rows) {
    const __m256 zero = _mm256_set1_ps(kMinusZero);
    for (int i = 0; i < rows * kPanelColumns; i += 8) _mm256_store_ps(scratch_.sum + i, zero);
  }

  void AddPlain(const TilePlace& at, int64_t tile) {
    float* sum = scratch_.sum;
    ForRows(at, tile, [&](int r, const Pair& value) {
      float* to = sum + r * kPanelColumns;
      _mm256_store_ps(to, _mm256_add_ps(_mm256_load_ps(to), value.lo));
      _mm256_store_ps(to + 8, _mm256_add_ps(_mm256_load_ps(to + 8), value.hi));
    });
  }

  void FinishPlain(const TilePlace& at) {
    const Pair bias = LoadColumns(bias_.From(at.n, 0), bias_.stride, kPanelColumns);
    const int64_t stride = block_.out.f32.row_stride;
    float* to = block_.out.f32.data + (block_.first_row + at.row) * stride + at.n;
    for (int r = 0; r < at.rows; ++r, to += stride) {
      const float* sum = scratch_.sum + r * kPanelColumns;
      _mm256_storeu_ps(to, Finish(_mm256_load_ps(sum), bias.lo));
      _mm256_storeu_ps(to + 8, Finish(_mm256_load_ps(sum + 8), bias.hi));
    }
  }

  // Adds tile `tile` of the sums in scratch.acc to scratch.sum, or finishes and stores when it is the last. Kept out of
  // the loop over tiles: inlined there, its many cases cost the common one its registers.
  [[gnu::noinline]] void Take(const TilePlace& at, int64_t tile) {
    const int64_t row = at.row, n = at.n, valid = block_.cols - n, padded = block_.padded_cols();
    const int rows = at.rows;
    if (zeros_) RemoveZeros(at, tile, valid);
    const bool last = tile + 1 == block_.tiles;
    const Pair col = LoadColumns(col_scale_.From(n, tile), col_scale_.stride, valid);
    PairI add = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    if (block_.col_add != nullptr) add = LoadInts(block_.col_add + tile * padded + n);
    Pair bias{};
    if (last) bias = LoadColumns(bias_.From(n, 0), bias_.stride, valid);
    for (int r = 0; r < rows; ++r) {
      const __m256i row_add = _mm256_set1_epi32(block_.row_add[row * block_.tiles + tile * rows + r]);
      const PairI raw = LoadInts(scratch_.acc + r * kPanelColumns);
      const PairI exact = {_mm256_add_epi32(_mm256_add_epi32(raw.lo, row_add), add.lo),
                           _mm256_add_epi32(_mm256_add_epi32(raw.hi, row_add), add.hi)};
      if (block_.out.i32.data != nullptr) {
        StoreI32(exact, row + r, n, valid);
        continue;
      }
      const int64_t m = block_.first_row + row + r;
      const __m256 scale = _mm256_broadcast_ss(row_scale_.From(m, tile));
      Pair value = {Scale(exact.lo, scale, col.lo), Scale(exact.hi, scale, col.hi)};
      float* sum = scratch_.sum + r * kPanelColumns;
      if (tile > 0) {
        value = {_mm256_add_ps(_mm256_load_ps(sum), value.lo), _mm256_add_ps(_mm256_load_ps(sum + 8), value.hi)};
      }
      if (!last) {
        _mm256_store_ps(sum, value.lo);
        _mm256_store_ps(sum + 8, value.hi);
        continue;
      }
      Store({Finish(value.lo, bias.lo), Finish(value.hi, bias.hi)}, m, n, valid);
    }
  }

 private:
  // Calls take(r, scaled values) for each row of a tile of 16 columns.
  template <typename Take>
  void ForRows(const TilePlace& at, int64_t tile, const Take& take) {
    const Pair col = LoadColumns(col_scale_.From(at.n, tile), col_scale_.stride, kPanelColumns);
    PairI add = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    if (block_.col_add != nullptr) add = LoadInts(block_.col_add + tile * block_.padded_cols() + at.n);
    const float* scales = row_scale_.From(block_.first_row + at.row, tile);
    const int64_t stride = row_scale_.stride;
    const int32_t *row_add = block_.row_add + at.row * block_.tiles + tile * at.rows, *acc = scratch_.acc;
    const auto one = [&](int r) {
      const __m256i more = _mm256_set1_epi32(row_add[r]);
      const PairI raw = LoadInts(acc + r * kPanelColumns);
      const __m256 scale = _mm256_broadcast_ss(scales + r * stride);
      take(r, Pair{Scale(_mm256_add_epi32(_mm256_add_epi32(raw.lo, more), add.lo), scale, col.lo),
                   Scale(_mm256_add_epi32(_mm256_add_epi32(raw.hi, more), add.hi), scale, col.hi)});
    };
    if (at.rows == kRows) {
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) one(r);
    } else {
      for (int r = 0; r < at.rows; ++r) one(r);
    }
  }

  static __m256 Round(__m256 x) { return kMath == ScaleMath::kBF16 ? RoundBF16(x) : x; }

  static __m256 Scale(__m256i sum, __m256 row, __m256 col) {
    __m256 value = Round(_mm256_cvtepi32_ps(sum));
    value = Round(_mm256_mul_ps(value, kOrder == ScaleOrder::kRowThenColumn ? row : col));
    return Round(_mm256_mul_ps(value, kOrder == ScaleOrder::kRowThenColumn ? col : row));
  }

  static __m256 Finish(__m256 value, __m256 bias) { return Round(_mm256_add_ps(Round(value), bias)); }

  // acc += what makes sum a b into sum (a - row zero) (b - column zero); see WithoutZeros.
  void RemoveZeros(const TilePlace& at, int64_t tile, int64_t valid) {
    const ScaleEpilogue& e = block_.epilogue;
    const int64_t row = at.row, n = at.n;
    const int rows = at.rows;
    const int64_t left = block_.k - tile * block_.tile_length;
    const int32_t steps = static_cast<int32_t>(left < block_.tile_length ? left : block_.tile_length);
    const PairI none = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    const PairI col_zero = e.col_zero.data == nullptr ? none : LoadZeros(e.col_zero, n, tile, valid);
    const PairI col_sum =
        e.row_zero.data == nullptr ? none : LoadInts(block_.col_sum + tile * block_.padded_cols() + n);
    for (int r = 0; r < rows; ++r) {
      const int32_t zero = e.row_zero.data == nullptr ? 0 : e.row_zero.at(block_.first_row + row + r, tile);
      const int32_t sum = e.col_zero.data == nullptr ? 0 : block_.row_sum[row * block_.tiles + tile * rows + r];
      const __m256i row_zero = _mm256_set1_epi32(zero);
      const __m256i rest = _mm256_set1_epi32(static_cast<int32_t>(
          static_cast<uint32_t>(sum) - static_cast<uint32_t>(steps) * static_cast<uint32_t>(zero)));
      __m256i* acc = reinterpret_cast<__m256i*>(scratch_.acc + r * kPanelColumns);
      acc[0] = _mm256_sub_epi32(
          acc[0], _mm256_add_epi32(_mm256_mullo_epi32(row_zero, col_sum.lo), _mm256_mullo_epi32(rest, col_zero.lo)));
      acc[1] = _mm256_sub_epi32(
          acc[1], _mm256_add_epi32(_mm256_mullo_epi32(row_zero, col_sum.hi), _mm256_mullo_epi32(rest, col_zero.hi)));
    }
  }

  void StoreI32(const PairI& value, int64_t row, int64_t n, int64_t valid) {
    const MatrixView<int32_t>& out = block_.out.i32;
    int32_t* to = out.data + (block_.first_row + row) * out.row_stride + n * out.col_stride;
    if (out.col_stride == 1 && valid >= kPanelColumns) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), value.lo);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 8), value.hi);
      return;
    }
    alignas(32) int32_t values[kPanelColumns];
    _mm256_store_si256(reinterpret_cast<__m256i*>(values), value.lo);
    _mm256_store_si256(reinterpret_cast<__m256i*>(values + 8), value.hi);
    for (int64_t c = 0; c < valid && c < kPanelColumns; ++c) to[c * out.col_stride] = values[c];
  }

  void Store(const Pair& value, int64_t m, int64_t n, int64_t valid) {
    if (block_.out.f32.data != nullptr) {
      const MatrixView<float>& out = block_.out.f32;
      float* to = out.data + m * out.row_stride + n * out.col_stride;
      if (out.col_stride == 1 && valid >= kPanelColumns) {
        _mm256_storeu_ps(to, value.lo);
        _mm256_storeu_ps(to + 8, value.hi);
        return;
      }
      alignas(32) float values[kPanelColumns];
      _mm256_store_ps(values, value.lo);
      _mm256_store_ps(values + 8, value.hi);
      for (int64_t c = 0; c < valid && c < kPanelColumns; ++c) to[c * out.col_stride] = values[c];
      return;
    }
    const MatrixView<uint16_t>& out = block_.out.bf16;
    uint16_t* to = out.data + m * out.row_stride + n * out.col_stride;
    // Both halves in order: pack works inside 128-bit lanes, the permutation puts them back.
    const __m256i packed = _mm256_packus_epi32(_mm256_srli_epi32(_mm256_castps_si256(RoundBF16(value.lo)), 16),
                                               _mm256_srli_epi32(_mm256_castps_si256(RoundBF16(value.hi)), 16));
    const __m256i ordered = _mm256_permute4x64_epi64(packed, 0xD8);
    if (out.col_stride == 1 && valid >= kPanelColumns) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), ordered);
      return;
    }
    alignas(32) uint16_t values[kPanelColumns];
    _mm256_store_si256(reinterpret_cast<__m256i*>(values), ordered);
    for (int64_t c = 0; c < valid && c < kPanelColumns; ++c) to[c * out.col_stride] = values[c];
  }

  const IntBlock& block_;
  TileScratch& scratch_;
  ScaleView<float> row_scale_, col_scale_, bias_;
  bool zeros_, plain_;
};

// One output tile of 16 columns.
template <typename Micro, typename Epilogue>
inline void RunPlainTile(const IntBlock& block, const TilePlace& at, const uint8_t* a, const uint8_t* b, bool fused,
                         Epilogue& epilogue, TileScratch& scratch) {
  const int64_t units = block.units, tiles = block.tiles;
  if (tiles == 1) {
    Micro::Run(at.rows, a, b, units, scratch);
    return epilogue.StorePlain(at);
  }
  epilogue.ClearPlain(at.rows);
  if (fused) {
    Micro::RunScaled(at.rows, a, b, tiles, units, block.row_add + at.row * tiles, epilogue.ColScales(at.n),
                     epilogue.col_tile_stride(), scratch);
  } else {
    for (int64_t tile = 0; tile < tiles; ++tile) {
      Micro::Run(at.rows, a + tile * units * kUnitRowBytes * at.rows, b + tile * units * kLineBytes, units, scratch);
      epilogue.AddPlain(at, tile);
    }
  }
  epilogue.FinishPlain(at);
}

// Every micro-tile of a rectangle. A strip stays in the first cache while the panels stream past it from the second.
template <typename Micro, typename Epilogue>
inline void RunRect(const IntBlock& block, const IntRect& rect, TileScratch& scratch) {
  Epilogue epilogue(block, scratch);
  const int64_t units = block.units, tiles = block.tiles, panel_bytes = block.panel_bytes();
  const int64_t whole = block.cols / kPanelColumns < rect.panel_end ? block.cols / kPanelColumns : rect.panel_end;
  const bool fused = epilogue.fusible() && Micro::Scales(units);
  for (int64_t strip = rect.strip_begin; strip < rect.strip_end; ++strip) {
    const int64_t row = strip * Micro::kRows, left = block.rows - row;
    const int rows = left < Micro::kRows ? static_cast<int>(left) : Micro::kRows;
    const uint8_t* a = block.strips + row * tiles * units * kUnitRowBytes;
    const uint8_t* b = block.panels + rect.panel_begin * panel_bytes;
    int64_t panel = rect.panel_begin;
    if (fused) epilogue.GatherRowScales(row, rows);
    for (; epilogue.plain() && panel < whole; ++panel, b += panel_bytes) {
      RunPlainTile<Micro>(block, {row, rows, panel * kPanelColumns}, a, b, fused, epilogue, scratch);
    }
    for (; panel < rect.panel_end; ++panel, b += panel_bytes) {
      for (int64_t tile = 0; tile < tiles; ++tile) {
        Micro::Run(rows, a + tile * units * kUnitRowBytes * rows, b + tile * units * kLineBytes, units, scratch);
        epilogue.Take({row, rows, panel * kPanelColumns}, tile);
      }
    }
  }
}

template <typename Micro>
inline void RunBlock(const IntBlock& block, const IntRect& rect) {
  TileScratch scratch;
  for (uint8_t& mask : scratch.nibble_mask) mask = 15;
  for (int16_t& one : scratch.ones) one = 1;
  for (int32_t& zero : scratch.zeros) zero = 0;
  constexpr auto kRow = ScaleOrder::kRowThenColumn, kColumn = ScaleOrder::kColumnThenRow;
  const bool row_first = block.epilogue.order == kRow;
  if (block.epilogue.math == ScaleMath::kF32) {
    if (row_first) return RunRect<Micro, TileEpilogue<Micro::kRows, ScaleMath::kF32, kRow>>(block, rect, scratch);
    return RunRect<Micro, TileEpilogue<Micro::kRows, ScaleMath::kF32, kColumn>>(block, rect, scratch);
  }
  if (row_first) return RunRect<Micro, TileEpilogue<Micro::kRows, ScaleMath::kBF16, kRow>>(block, rect, scratch);
  return RunRect<Micro, TileEpilogue<Micro::kRows, ScaleMath::kBF16, kColumn>>(block, rect, scratch);
}

}  // namespace
}  // namespace octavo::kernels
