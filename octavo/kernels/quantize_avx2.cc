// Quantizing 32 values at a time. Edges go through a padded copy of the last values, so that every element takes the
// same instructions.
#include <immintrin.h>

#include <bit>
#include <cstring>

#include "octavo/kernels/quantize_tile.h"
#include "octavo/kernels/round_bf16_avx2.h"

namespace octavo::kernels {
namespace {

constexpr int64_t kStep = 32;

// The two types of a source.
struct F32 {
  using Value = float;
  static const Value* From(const QuantizeTile& t) { return t.f32; }
  static __m256 Load(const Value* p) { return _mm256_loadu_ps(p); }
  static __m256 Round(__m256 x) { return x; }
};
struct BF16 {
  using Value = uint16_t;
  static const Value* From(const QuantizeTile& t) { return t.bf16; }
  static __m256 Load(const Value* p) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
  }
  static __m256 Round(__m256 x) { return RoundBF16(x); }
};

// Which of the optional steps a rectangle has: fixed before the loops, so that they have no branches (but the one
// between multiplication and division, which is always taken the same way).
enum class Pre { kNone, kRow, kColumn };
enum class Care { kTame, kClamp, kMore };  // see QuantizeTile::tame; clamp and NaN; also zero points or noise
template <typename Type_, Pre kPre_, bool kPerColumn_, Care kCare_>
struct Mode {
  using Type = Type_;
  static constexpr Pre kPre = kPre_;
  static constexpr bool kPerColumn = kPerColumn_;
  static constexpr Care kCare = kCare_;
};

// Calls use(Mode<…>{}) for the values of a rectangle, before there are codes.
template <typename Use>
void WithValueMode(const QuantizeTile& t, const Use& use) {
  const auto pre = [&]<typename Type>() {
    if (t.pre_row != nullptr) return use(Mode<Type, Pre::kRow, false, Care::kTame>{});
    if (t.pre_col != nullptr) return use(Mode<Type, Pre::kColumn, false, Care::kTame>{});
    use(Mode<Type, Pre::kNone, false, Care::kTame>{});
  };
  t.bf16 != nullptr ? pre.template operator()<BF16>() : pre.template operator()<F32>();
}

// The same for the codes.
template <typename Use>
void WithCodeMode(const QuantizeTile& t, const Use& use) {
  WithValueMode(t, [&]<typename M>(M) {
    const auto care = [&]<bool kPerColumn>() {
      using Type = typename M::Type;
      if (t.zero != nullptr || t.noise != nullptr) return use(Mode<Type, M::kPre, kPerColumn, Care::kMore>{});
      if (t.tame) return use(Mode<Type, M::kPre, kPerColumn, Care::kTame>{});
      use(Mode<Type, M::kPre, kPerColumn, Care::kClamp>{});
    };
    t.per_column ? care.template operator()<true>() : care.template operator()<false>();
  });
}

// 32 values of a row and what belongs to their columns.
template <typename M>
struct Run {
  const typename M::Type::Value* x;
  const float *pre_row, *pre_col, *factor, *zero, *noise;

  Run(const QuantizeTile& t, int64_t r, int64_t c)
      : x(M::Type::From(t) + r * t.row_stride + c),
        pre_row(M::kPre == Pre::kRow ? t.pre_row + r : nullptr),
        pre_col(M::kPre == Pre::kColumn ? t.pre_col + c : nullptr),
        factor(M::kPerColumn && t.factor != nullptr ? t.factor + c : t.factor),
        zero(M::kPerColumn && t.zero != nullptr ? t.zero + c : t.zero),
        noise(t.noise == nullptr ? nullptr : t.noise + r * t.noise_row_stride + c * t.noise_col_stride) {}
};

// Copies of the last `count` < 32 values of a row with zeros behind them.
template <typename M>
struct Edge {
  typename M::Type::Value x[kStep] = {};
  float pre_col[kStep] = {}, factor[kStep] = {}, zero[kStep] = {}, noise[kStep] = {};

  Run<M> Fill(const QuantizeTile& t, Run<M> run, int64_t count) {
    const auto copy = [&](const auto*& from, auto* to, bool wide) {
      if (from == nullptr || !wide) return;
      std::memcpy(to, from, static_cast<size_t>(count) * sizeof(*to));
      from = to;
    };
    copy(run.x, x, true);
    copy(run.pre_col, pre_col, true);
    copy(run.factor, factor, M::kPerColumn);
    copy(run.zero, zero, M::kPerColumn);
    copy(run.noise, noise, t.noise_col_stride == 1);
    return run;
  }
};

// 8 values as the quantizer sees them.
template <typename M>
inline __m256 Element(const Run<M>& run, int i) {
  const __m256 x = M::Type::Load(run.x + i);
  if constexpr (M::kPre == Pre::kRow) return M::Type::Round(_mm256_mul_ps(x, _mm256_broadcast_ss(run.pre_row)));
  if constexpr (M::kPre == Pre::kColumn) return M::Type::Round(_mm256_mul_ps(x, _mm256_loadu_ps(run.pre_col + i)));
  return x;
}

inline __m256i Magnitude(__m256 x) { return _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7FFFFFFF)); }

inline uint32_t Largest(__m256i v) {
  __m128i best = _mm_max_epu32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  best = _mm_max_epu32(best, _mm_shuffle_epi32(best, 0x4E));
  best = _mm_max_epu32(best, _mm_shuffle_epi32(best, 0xB1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(best));
}

template <typename M>
uint32_t AbsMaxRow(const QuantizeTile& t, int64_t r, int64_t begin, int64_t end) {
  __m256i best[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256()};
  int64_t c = begin;
  for (; c + kStep <= end; c += kStep) {
    const Run<M> run(t, r, c);
    for (int i = 0; i < 4; ++i) best[i] = _mm256_max_epu32(best[i], Magnitude(Element(run, 8 * i)));
  }
  if (c < end) {
    Edge<M> edge;
    const Run<M> run = edge.Fill(t, Run<M>(t, r, c), end - c);
    for (int i = 0; i < 4; ++i) best[i] = _mm256_max_epu32(best[i], Magnitude(Element(run, 8 * i)));
  }
  return Largest(_mm256_max_epu32(_mm256_max_epu32(best[0], best[1]), _mm256_max_epu32(best[2], best[3])));
}

template <typename M>
void AbsMaxColumns(const QuantizeTile& t, uint32_t* best) {
  for (int64_t r = 0; r < t.rows; ++r) {
    int64_t c = 0;
    for (; c + kStep <= t.cols; c += kStep) {
      const Run<M> run(t, r, c);
      for (int i = 0; i < 4; ++i) {
        __m256i* to = reinterpret_cast<__m256i*>(best + c + 8 * i);
        _mm256_storeu_si256(to, _mm256_max_epu32(_mm256_loadu_si256(to), Magnitude(Element(run, 8 * i))));
      }
    }
    if (c == t.cols) continue;
    Edge<M> edge;
    const Run<M> run = edge.Fill(t, Run<M>(t, r, c), t.cols - c);
    alignas(32) uint32_t lanes[kStep];
    for (int i = 0; i < 4; ++i) {
      _mm256_store_si256(reinterpret_cast<__m256i*>(lanes + 8 * i), Magnitude(Element(run, 8 * i)));
    }
    for (int64_t i = 0; c + i < t.cols; ++i) best[c + i] = lanes[i] > best[c + i] ? lanes[i] : best[c + i];
  }
}

template <typename M>
inline __m256i Codes8(const QuantizeTile& t, const Run<M>& run, __m256 low, __m256 high, int i) {
  using Type = typename M::Type;
  const __m256 x = Element(run, i);
  const __m256 factor = M::kPerColumn ? _mm256_loadu_ps(run.factor + i) : _mm256_broadcast_ss(run.factor);
  __m256 q = Type::Round(t.divide ? _mm256_div_ps(x, factor) : _mm256_mul_ps(x, factor));
  if constexpr (M::kCare == Care::kTame) return _mm256_cvtps_epi32(q);
  if constexpr (M::kCare == Care::kMore) {
    if (run.zero != nullptr) {
      q = Type::Round(_mm256_add_ps(q, M::kPerColumn ? _mm256_loadu_ps(run.zero + i) : _mm256_broadcast_ss(run.zero)));
    }
    if (run.noise != nullptr) {
      q = _mm256_add_ps(q, t.noise_col_stride == 1 ? _mm256_loadu_ps(run.noise + i) : _mm256_broadcast_ss(run.noise));
    }
  }
  q = _mm256_and_ps(q, _mm256_cmp_ps(q, q, _CMP_ORD_Q));  // NaN to 0
  return _mm256_cvtps_epi32(_mm256_min_ps(_mm256_max_ps(q, low), high));
}

template <typename M>
inline __m256i Codes32(const QuantizeTile& t, const Run<M>& run, __m256 low, __m256 high) {
  const __m256i a = _mm256_packs_epi32(Codes8(t, run, low, high, 0), Codes8(t, run, low, high, 8));
  const __m256i b = _mm256_packs_epi32(Codes8(t, run, low, high, 16), Codes8(t, run, low, high, 24));
  // Packing works inside 128-bit lanes; this puts the groups of four back in order.
  return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

template <typename M>
void QuantizeRow(const QuantizeTile& t, int64_t r, int64_t begin, int64_t end) {
  const __m256 low = _mm256_set1_ps(t.min_code), high = _mm256_set1_ps(t.max_code);
  int8_t* to = t.codes + r * t.codes_row_stride;
  int64_t c = begin;
  if (t.codes_col_stride == 1) {
    for (; c + kStep <= end; c += kStep) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + c), Codes32(t, Run<M>(t, r, c), low, high));
    }
  }
  for (; c < end; c += kStep) {
    const int64_t count = end - c < kStep ? end - c : kStep;
    Edge<M> edge;
    Run<M> run(t, r, c);
    if (count < kStep) run = edge.Fill(t, run, count);
    alignas(32) int8_t codes[kStep];
    _mm256_store_si256(reinterpret_cast<__m256i*>(codes), Codes32(t, run, low, high));
    for (int64_t i = 0; i < count; ++i) to[(c + i) * t.codes_col_stride] = codes[i];
  }
}

// 8 codes back to values; scale and zero as [8] or one.
inline __m256 Values8(const DequantizeTile& t, const int8_t* codes, const float* scale, const float* zero) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes));
  __m256 value = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
  if (zero != nullptr) {
    value = _mm256_sub_ps(value, t.per_column ? _mm256_loadu_ps(zero) : _mm256_broadcast_ss(zero));
  }
  return _mm256_mul_ps(value, t.per_column ? _mm256_loadu_ps(scale) : _mm256_broadcast_ss(scale));
}

inline __m128i HalvesOf(__m256 value) {
  const __m256i high = _mm256_srli_epi32(_mm256_castps_si256(RoundBF16(value)), 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
}

// Values c … c + count - 1 < 8 of a row, through padded copies.
void DequantizeEdge(const DequantizeTile& t, int64_t r, int64_t c, int64_t count) {
  int8_t codes[8] = {};
  float scale[8] = {}, zero[8] = {}, out[8];
  uint16_t half[8];
  const size_t n = static_cast<size_t>(count);
  std::memcpy(codes, t.codes + r * t.codes_row_stride + c, n);
  if (t.per_column) std::memcpy(scale, t.scale + c, n * sizeof(float));
  if (t.per_column && t.zero != nullptr) std::memcpy(zero, t.zero + c, n * sizeof(float));
  const __m256 value = Values8(t, codes, t.per_column ? scale : t.scale,
                               t.zero == nullptr ? nullptr
                               : t.per_column    ? zero
                                                 : t.zero);
  if (t.f32 != nullptr) {
    _mm256_storeu_ps(out, value);
    std::memcpy(t.f32 + r * t.row_stride + c, out, n * sizeof(float));
  } else {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(half), HalvesOf(value));
    std::memcpy(t.bf16 + r * t.row_stride + c, half, n * sizeof(uint16_t));
  }
}

}  // namespace

void DequantizeTileAvx2(const DequantizeTile& t) {
  for (int64_t r = 0; r < t.rows; ++r) {
    const int8_t* codes = t.codes + r * t.codes_row_stride;
    int64_t c = 0;
    for (; c + 8 <= t.cols; c += 8) {
      const __m256 value = Values8(t, codes + c, t.per_column ? t.scale + c : t.scale,
                                   t.zero == nullptr ? nullptr
                                   : t.per_column    ? t.zero + c
                                                     : t.zero);
      if (t.f32 != nullptr) {
        _mm256_storeu_ps(t.f32 + r * t.row_stride + c, value);
      } else {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(t.bf16 + r * t.row_stride + c), HalvesOf(value));
      }
    }
    if (c < t.cols) DequantizeEdge(t, r, c, t.cols - c);
  }
}

uint32_t AbsMaxTileAvx2(const QuantizeTile& tile) {
  uint32_t best = 0;
  WithValueMode(tile, [&]<typename M>(M) {
    for (int64_t r = 0; r < tile.rows; ++r) {
      const uint32_t row = AbsMaxRow<M>(tile, r, 0, tile.cols);
      best = row > best ? row : best;
    }
  });
  return best;
}

void AbsMaxColumnsAvx2(const QuantizeTile& tile, uint32_t* best) {
  WithValueMode(tile, [&]<typename M>(M) { AbsMaxColumns<M>(tile, best); });
}

void QuantizeTileAvx2(const QuantizeTile& tile) {
  WithCodeMode(tile, [&]<typename M>(M) {
    for (int64_t r = 0; r < tile.rows; ++r) QuantizeRow<M>(tile, r, 0, tile.cols);
  });
}

void QuantizeRowBlocksAvx2(const QuantizeTile& tile, const QuantizeSpec& spec, int64_t width, float* scale,
                           int64_t row_step, int64_t step) {
  const bool bf16 = tile.bf16 != nullptr;
  QuantizeTile t = tile;
  for (int64_t r = 0; r < tile.rows; ++r) {
    for (int64_t begin = 0, block = 0; begin < tile.cols; begin += width, ++block) {
      const int64_t end = begin + width < tile.cols ? begin + width : tile.cols;
      uint32_t absmax = 0;
      WithValueMode(t, [&]<typename M>(M) { absmax = AbsMaxRow<M>(t, r, begin, end); });
      const float one = ScaleFromAbsMax(spec, bf16, std::bit_cast<float>(absmax));
      const float factor = CodeFactor(spec, bf16, one);
      scale[r * row_step + block * step] = one;
      t.factor = &factor;
      t.tame = IsTame(spec, absmax);
      WithCodeMode(t, [&]<typename M>(M) { QuantizeRow<M>(t, r, begin, end); });
    }
  }
}

}  // namespace octavo::kernels
