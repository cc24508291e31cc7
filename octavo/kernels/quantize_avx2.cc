// Quantizing 32 values at a time. Edges go through a padded copy of the last values, so that every element takes the
// same instructions.
#include <immintrin.h>

#include <bit>
#include <cstring>
#include <type_traits>

#include "octavo/kernels/quantize_tile.h"

namespace octavo::kernels {
namespace {

constexpr int64_t kStep = 32;

inline __m256 RoundBF16(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i lsb = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(lsb, _mm256_set1_epi32(0x7FFF)));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  return _mm256_castsi256_ps(
      _mm256_and_si256(_mm256_blendv_epi8(up, quiet, nan), _mm256_set1_epi32(static_cast<int>(0xFFFF0000))));
}

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

// One run of a row: what belongs to its columns, from `c` on.
template <typename Type>
struct Run {
  const typename Type::Value* x;
  const float *pre_col, *factor, *zero, *noise;
};

template <typename Type>
Run<Type> RunOf(const QuantizeTile& t, int64_t r, int64_t c) {
  const bool per = t.per_column;
  return {Type::From(t) + r * t.row_stride + c, t.pre_col == nullptr ? nullptr : t.pre_col + c,
          t.factor == nullptr || !per ? t.factor : t.factor + c, t.zero == nullptr || !per ? t.zero : t.zero + c,
          t.noise == nullptr ? nullptr : t.noise + r * t.noise_row_stride + c * t.noise_col_stride};
}

// Copies of a run's last `count` < 32 values with zeros behind them.
template <typename Type>
struct Edge {
  typename Type::Value x[kStep] = {};
  float pre_col[kStep] = {}, factor[kStep] = {}, zero[kStep] = {}, noise[kStep] = {};

  Run<Type> Fill(const QuantizeTile& t, const Run<Type>& run, int64_t count) {
    const size_t bytes = static_cast<size_t>(count) * sizeof(float);
    std::memcpy(x, run.x, static_cast<size_t>(count) * sizeof(x[0]));
    Run<Type> padded = run;
    padded.x = x;
    const auto copy = [&](const float*& from, float* to, bool wide) {
      if (from == nullptr || !wide) return;
      std::memcpy(to, from, bytes);
      from = to;
    };
    copy(padded.pre_col, pre_col, true);
    copy(padded.factor, factor, t.per_column);
    copy(padded.zero, zero, t.per_column);
    copy(padded.noise, noise, t.noise_col_stride == 1);
    return padded;
  }
};

// 8 values as the quantizer sees them.
template <typename Type>
inline __m256 Element(const Run<Type>& run, const float* pre_row, int i) {
  __m256 x = Type::Load(run.x + i);
  if (pre_row != nullptr) x = Type::Round(_mm256_mul_ps(x, _mm256_broadcast_ss(pre_row)));
  if (run.pre_col != nullptr) x = Type::Round(_mm256_mul_ps(x, _mm256_loadu_ps(run.pre_col + i)));
  return x;
}

inline __m256i Magnitude(__m256 x) { return _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7FFFFFFF)); }

inline uint32_t Largest(__m256i v) {
  alignas(32) uint32_t lanes[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), v);
  uint32_t best = 0;
  for (const uint32_t lane : lanes) best = lane > best ? lane : best;
  return best;
}

template <typename Type>
uint32_t AbsMaxRow(const QuantizeTile& t, int64_t r, int64_t begin, int64_t end) {
  const float* pre_row = t.pre_row == nullptr ? nullptr : t.pre_row + r;
  __m256i best[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256()};
  const auto take = [&](const Run<Type>& run) {
    for (int i = 0; i < 4; ++i) best[i] = _mm256_max_epu32(best[i], Magnitude(Element(run, pre_row, 8 * i)));
  };
  int64_t c = begin;
  for (; c + kStep <= end; c += kStep) take(RunOf<Type>(t, r, c));
  if (c < end) {
    Edge<Type> edge;
    take(edge.Fill(t, RunOf<Type>(t, r, c), end - c));
  }
  return Largest(_mm256_max_epu32(_mm256_max_epu32(best[0], best[1]), _mm256_max_epu32(best[2], best[3])));
}

template <typename Type>
void AbsMaxColumns(const QuantizeTile& t, uint32_t* best) {
  for (int64_t r = 0; r < t.rows; ++r) {
    const float* pre_row = t.pre_row == nullptr ? nullptr : t.pre_row + r;
    int64_t c = 0;
    for (; c + kStep <= t.cols; c += kStep) {
      const Run<Type> run = RunOf<Type>(t, r, c);
      for (int i = 0; i < 4; ++i) {
        __m256i* to = reinterpret_cast<__m256i*>(best + c + 8 * i);
        _mm256_storeu_si256(to, _mm256_max_epu32(_mm256_loadu_si256(to), Magnitude(Element(run, pre_row, 8 * i))));
      }
    }
    if (c == t.cols) continue;
    Edge<Type> edge;
    const Run<Type> run = edge.Fill(t, RunOf<Type>(t, r, c), t.cols - c);
    alignas(32) uint32_t lanes[kStep];
    for (int i = 0; i < 4; ++i) {
      _mm256_store_si256(reinterpret_cast<__m256i*>(lanes + 8 * i), Magnitude(Element(run, pre_row, 8 * i)));
    }
    for (int64_t i = 0; c + i < t.cols; ++i) best[c + i] = lanes[i] > best[c + i] ? lanes[i] : best[c + i];
  }
}

// What is the same for all codes of a rectangle.
struct CodeRule {
  explicit CodeRule(const QuantizeTile& t)
      : low(_mm256_set1_ps(t.min_code)),
        high(_mm256_set1_ps(t.max_code)),
        per_column(t.per_column),
        divide(t.divide),
        noise_step(t.noise_col_stride) {}
  __m256 low, high;
  bool per_column, divide;
  int64_t noise_step;
};

template <typename Type>
inline __m256i Codes8(const CodeRule& rule, const Run<Type>& run, const float* pre_row, int i) {
  const __m256 x = Element(run, pre_row, i);
  const __m256 factor = rule.per_column ? _mm256_loadu_ps(run.factor + i) : _mm256_broadcast_ss(run.factor);
  __m256 q = Type::Round(rule.divide ? _mm256_div_ps(x, factor) : _mm256_mul_ps(x, factor));
  if (run.zero != nullptr) {
    q = Type::Round(_mm256_add_ps(q, rule.per_column ? _mm256_loadu_ps(run.zero + i) : _mm256_broadcast_ss(run.zero)));
  }
  if (run.noise != nullptr) {
    q = _mm256_add_ps(q, rule.noise_step == 1 ? _mm256_loadu_ps(run.noise + i) : _mm256_broadcast_ss(run.noise));
  }
  q = _mm256_and_ps(q, _mm256_cmp_ps(q, q, _CMP_ORD_Q));  // NaN to 0
  return _mm256_cvtps_epi32(_mm256_min_ps(_mm256_max_ps(q, rule.low), rule.high));
}

template <typename Type>
inline __m256i Codes32(const CodeRule& rule, const Run<Type>& run, const float* pre_row) {
  const __m256i low = _mm256_packs_epi32(Codes8(rule, run, pre_row, 0), Codes8(rule, run, pre_row, 8));
  const __m256i high = _mm256_packs_epi32(Codes8(rule, run, pre_row, 16), Codes8(rule, run, pre_row, 24));
  // Packing works inside 128-bit lanes; this puts the groups of four back in order.
  return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

template <typename Type>
void QuantizeRow(const QuantizeTile& t, int64_t r, int64_t begin, int64_t end) {
  const CodeRule rule(t);
  const float* pre_row = t.pre_row == nullptr ? nullptr : t.pre_row + r;
  int8_t* to = t.codes + r * t.codes_row_stride;
  int64_t c = begin;
  if (t.codes_col_stride == 1) {
    for (; c + kStep <= end; c += kStep) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + c), Codes32(rule, RunOf<Type>(t, r, c), pre_row));
    }
  }
  for (; c < end; c += kStep) {
    const int64_t count = end - c < kStep ? end - c : kStep;
    Edge<Type> edge;
    Run<Type> run = RunOf<Type>(t, r, c);
    if (count < kStep) run = edge.Fill(t, run, count);
    alignas(32) int8_t codes[kStep];
    _mm256_store_si256(reinterpret_cast<__m256i*>(codes), Codes32(rule, run, pre_row));
    for (int64_t i = 0; i < count; ++i) to[(c + i) * t.codes_col_stride] = codes[i];
  }
}

template <typename Type>
void QuantizeRowBlocks(const QuantizeTile& tile, const QuantizeSpec& spec, int64_t width, float* scale,
                       int64_t row_step, int64_t step) {
  constexpr bool kBF16 = std::is_same_v<Type, BF16>;
  QuantizeTile t = tile;
  for (int64_t r = 0; r < t.rows; ++r) {
    for (int64_t begin = 0, block = 0; begin < t.cols; begin += width, ++block) {
      const int64_t end = begin + width < t.cols ? begin + width : t.cols;
      const float one = ScaleFromAbsMax(spec, kBF16, std::bit_cast<float>(AbsMaxRow<Type>(t, r, begin, end)));
      const float factor = CodeFactor(spec, kBF16, one);
      scale[r * row_step + block * step] = one;
      t.factor = &factor;
      QuantizeRow<Type>(t, r, begin, end);
    }
  }
}

}  // namespace

uint32_t AbsMaxTileAvx2(const QuantizeTile& tile) {
  uint32_t best = 0;
  for (int64_t r = 0; r < tile.rows; ++r) {
    const uint32_t row =
        tile.bf16 != nullptr ? AbsMaxRow<BF16>(tile, r, 0, tile.cols) : AbsMaxRow<F32>(tile, r, 0, tile.cols);
    best = row > best ? row : best;
  }
  return best;
}

void AbsMaxColumnsAvx2(const QuantizeTile& tile, uint32_t* best) {
  tile.bf16 != nullptr ? AbsMaxColumns<BF16>(tile, best) : AbsMaxColumns<F32>(tile, best);
}

void QuantizeTileAvx2(const QuantizeTile& tile) {
  for (int64_t r = 0; r < tile.rows; ++r) {
    tile.bf16 != nullptr ? QuantizeRow<BF16>(tile, r, 0, tile.cols) : QuantizeRow<F32>(tile, r, 0, tile.cols);
  }
}

void QuantizeRowBlocksAvx2(const QuantizeTile& tile, const QuantizeSpec& spec, int64_t width, float* scale,
                           int64_t row_step, int64_t step) {
  tile.bf16 != nullptr ? QuantizeRowBlocks<BF16>(tile, spec, width, scale, row_step, step)
                       : QuantizeRowBlocks<F32>(tile, spec, width, scale, row_step, step);
}

}  // namespace octavo::kernels
