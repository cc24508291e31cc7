// The forward pass for a few rows, the decode step: keys are lanes for the scores, features for the values, and stored
// keys and values go straight through registers, once. The order of every sum is that of the panels.
#include "octavo/kernels/attention_impl.h"
#include "octavo/kernels/attention_rows_avx2.h"
#include "octavo/kernels/attention_running_avx2.h"
#include "octavo/kernels/attention_tile_avx2.h"
#include "octavo/kernels/math_avx2.h"

namespace octavo::kernels {
namespace {

struct Few {
  const ForwardTask* task;
  int64_t rows;
  int64_t query_stride;
  float* query;   // [kFewRows, query_stride], scaled; zeros in the rows that the task has not
  float* z;       // [kFewRows, 64]
  float* buffer;  // one block of keys or values
  float* panels;  // two panels of up to kDotLeaf features
  RunningRows part, total;
};

Few Layout(const ForwardTask& task, float* scratch) {
  const AttentionShape& shape = task.call->shape;
  Few f;
  f.task = &task;
  f.rows = task.row_end - task.row_begin;
  f.query_stride = RoundUp(shape.qk_dim, kPanel);
  const auto take = [&](int64_t floats) {
    float* at = scratch;
    scratch += RoundUp(floats, kPanel);
    return at;
  };
  f.query = take(kFewRows * f.query_stride);
  f.z = take(kFewRows * kKeyBlock);
  f.buffer = take(PackedFloats(shape));
  f.panels = take(2 * kDotLeaf * kPanel);
  for (RunningRows* running : {&f.part, &f.total}) {
    running->m = take(kPanel);
    running->l = take(kPanel);
    running->stride = LocalStride(shape.v_dim);
    running->width = RoundUp(shape.v_dim, kPanel);
    running->o = take(kFewRows * running->stride);
  }
  return f;
}

// 64 vectors of one head: row j at data + j * stride.
struct Rows {
  const uint8_t* data;
  int64_t stride, bytes;  // bytes of one row
  const float* scale;     // null: none
  int64_t scale_stride;
};

// Scores read eight keys at a time as matrices of 8 x 8 dwords, transpose them, and take the features out of the
// dwords, one key per lane. Each form says how many features a dword holds, whether they have scales, and unpacks them.
struct DwordF32 {
  static constexpr int kPer = 1;
  static constexpr bool kScaled = false;
  OCTAVO_INLINE void Unpack(__m256i t, __m256* k) { k[0] = _mm256_castsi256_ps(t); }
};

struct DwordBf16 {
  static constexpr int kPer = 2;
  static constexpr bool kScaled = false;
  OCTAVO_INLINE void Unpack(__m256i t, __m256* k) {
    k[0] = _mm256_castsi256_ps(_mm256_slli_epi32(t, 16));
    k[1] = _mm256_castsi256_ps(_mm256_andnot_si256(_mm256_set1_epi32(0xffff), t));
  }
};

// Signed fields of `bits` bits, one in each `step` bits.
template <int bits, int step>
struct DwordInt {
  static constexpr int kPer = 32 / step;
  static constexpr bool kScaled = true;
  OCTAVO_INLINE void Unpack(__m256i t, __m256* k) {
#pragma GCC unroll 8
    for (int j = 0; j < kPer; ++j) {
      k[j] = _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(t, 32 - bits - step * j), 32 - bits));
    }
  }
};

// Every fp8 number is a bf16 number, so a code in 16 bits becomes a bf16 code: shifted mantissa and exponent plus the
// difference of the biases; the few subnormals come from a table of two bytes each.
template <int mantissa, int bias>
OCTAVO_INLINE __m256i Fp8ToBf16(__m256i codes) {
  const __m256i magnitude = _mm256_and_si256(codes, _mm256_set1_epi16(0x7f));
  const __m256i sign = _mm256_slli_epi16(_mm256_and_si256(codes, _mm256_set1_epi16(0x80)), 8);
  const __m256i moved = _mm256_set1_epi16((127 - bias) << 7);
  __m256i normal = _mm256_add_epi16(_mm256_slli_epi16(magnitude, 7 - mantissa), moved);
  alignas(16) uint8_t low[16] = {}, high[16] = {};
  for (int m = 1; m < 1 << mantissa; ++m) {
    const int top = m >= 4 ? 2 : (m >= 2 ? 1 : 0);
    const int code = ((top + 128 - bias - mantissa) << 7) | ((m << (7 - top)) & 0x7f);
    low[m] = static_cast<uint8_t>(code);
    high[m] = static_cast<uint8_t>(code >> 8);
  }
  const __m256i low_table = _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(low)));
  const __m256i high_table = _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(high)));
  const __m256i index = _mm256_or_si256(magnitude, _mm256_set1_epi16(static_cast<int16_t>(0x8000)));  // 0x80: gives 0
  const __m256i small = _mm256_or_si256(_mm256_shuffle_epi8(low_table, index),
                                        _mm256_slli_epi16(_mm256_shuffle_epi8(high_table, index), 8));
  const __m256i is_small = _mm256_cmpgt_epi16(_mm256_set1_epi16(1 << mantissa), magnitude);
  if constexpr (mantissa == 2) {  // e5m2 keeps the codes of infinity and NaN of its exponent
    const __m256i special = _mm256_cmpgt_epi16(magnitude, _mm256_set1_epi16(0x7b));
    normal = _mm256_add_epi16(normal, _mm256_and_si256(special, moved));
  } else {  // e4m3fn has one NaN
    normal = _mm256_or_si256(normal, _mm256_cmpeq_epi16(magnitude, _mm256_set1_epi16(0x7f)));
  }
  return _mm256_or_si256(_mm256_blendv_epi8(normal, small, is_small), sign);
}

template <int mantissa, int bias>
struct DwordFp8 {
  static constexpr int kPer = 4;
  static constexpr bool kScaled = true;
  OCTAVO_INLINE void Unpack(__m256i t, __m256* k) {
    const __m256i bytes = _mm256_set1_epi16(0xff);
    const __m256i even = Fp8ToBf16<mantissa, bias>(_mm256_and_si256(t, bytes));
    const __m256i odd = Fp8ToBf16<mantissa, bias>(_mm256_srli_epi16(t, 8));
    DwordBf16::Unpack(even, k);
    __m256 upper[2];
    DwordBf16::Unpack(odd, upper);
    k[2] = k[1];
    k[1] = upper[0];
    k[3] = upper[1];
  }
};

// Dwords c … c + 7 of eight rows, one row per lane.
OCTAVO_INLINE void Transposed(const uint8_t* rows, int64_t stride, __m256i* t) {
  __m256 r[8], u[8];
  for (int half = 0; half < 2; ++half) {
    for (int i = 0; i < 4; ++i) {
      const auto* low = reinterpret_cast<const float*>(rows + i * stride) + half * 4;
      const auto* high = reinterpret_cast<const float*>(rows + (i + 4) * stride) + half * 4;
      r[half * 4 + i] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(low)), _mm_loadu_ps(high), 1);
    }
  }
  for (int half = 0; half < 8; half += 4) {
    u[half + 0] = _mm256_unpacklo_ps(r[half], r[half + 1]);
    u[half + 1] = _mm256_unpackhi_ps(r[half], r[half + 1]);
    u[half + 2] = _mm256_unpacklo_ps(r[half + 2], r[half + 3]);
    u[half + 3] = _mm256_unpackhi_ps(r[half + 2], r[half + 3]);
  }
  for (int half = 0; half < 8; half += 4) {
    t[half + 0] = _mm256_castps_si256(_mm256_shuffle_ps(u[half], u[half + 2], 0x44));
    t[half + 1] = _mm256_castps_si256(_mm256_shuffle_ps(u[half], u[half + 2], 0xee));
    t[half + 2] = _mm256_castps_si256(_mm256_shuffle_ps(u[half + 1], u[half + 3], 0x44));
    t[half + 3] = _mm256_castps_si256(_mm256_shuffle_ps(u[half + 1], u[half + 3], 0xee));
  }
}

// Asks for bytes begin … end - 1 of row j. Spread over the loops: a burst of requests would stall. Into the second
// cache: a block of f32 keys is as large as the first, which then lost what it was working on (half of the speed).
OCTAVO_INLINE void Prefetch(const Rows& rows, int64_t j, int64_t begin, int64_t end) {
  if (end > rows.bytes) end = rows.bytes;
  const uint8_t* row = rows.data + j * rows.stride;
  for (int64_t b = begin; b < end; b += 64) _mm_prefetch(reinterpret_cast<const char*>(row + b), _MM_HINT_T1);
}

// The features of one dword, to consecutive rows of a panel.
template <typename Form>
OCTAVO_INLINE void StoreDword(__m256i t, __m256 scale, float* to) {
  __m256 k[Form::kPer];
  Form::Unpack(t, k);
#pragma GCC unroll 8
  for (int j = 0; j < Form::kPer; ++j) {
    _mm256_store_ps(to + j * kPanel, Form::kScaled ? _mm256_mul_ps(k[j], scale) : k[j]);
  }
}

// Features begin … end - 1 of keys j … j + 15 become the lanes of a panel. `ahead`: the rows that are read next.
template <typename Form>
[[gnu::noinline]] void KeyPanel(const Rows& keys, int64_t j, int64_t begin, int64_t end, const Rows& ahead,
                                float* panel) {
  for (int64_t half = 0; half < kPanel; half += 8) {
    const uint8_t* rows = keys.data + (j + half) * keys.stride;
    alignas(32) float each[8] = {};
    if constexpr (Form::kScaled) {
      for (int i = 0; i < 8; ++i) each[i] = keys.scale[(j + half + i) * keys.scale_stride];
    }
    const __m256 scale = _mm256_load_ps(each);
    for (int64_t c = begin; c < end; c += 8 * Form::kPer) {
      const int64_t byte = c / Form::kPer * 4;
      if (byte % 64 == 0) {
        for (int i = 0; i < 8; ++i) Prefetch(ahead, j + half + i, byte, byte + 64);
      }
      __m256i t[8];
      Transposed(rows + byte, keys.stride, t);
      float* to = panel + (c - begin) * kPanel + half;
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) StoreDword<Form>(t[i], scale, to + i * Form::kPer * kPanel);
    }
  }
}

using KeyPanelFunction = void (*)(const Rows&, int64_t, int64_t, int64_t, const Rows&, float*);

// Null where the stored form is not made of fields of dwords, or a row not of whole 32 bytes.
KeyPanelFunction KeyPanelOf(const KvSide& side, int64_t width) {
  if (BytesOf(side, width) % 32 != 0) return nullptr;
  switch (side.format) {
    case Format::kF32:
      return KeyPanel<DwordF32>;
    case Format::kBF16:
      return KeyPanel<DwordBf16>;
    case Format::kInt8:
      return KeyPanel<DwordInt<8, 8>>;
    case Format::kInt4:
      return side.packed ? KeyPanel<DwordInt<4, 4>> : KeyPanel<DwordInt<4, 8>>;
    case Format::kF8E4M3FN:
      return KeyPanel<DwordFp8<3, 7>>;
    case Format::kF8E5M2:
      return KeyPanel<DwordFp8<2, 15>>;
    default:
      return nullptr;
  }
}

// z[r, 0 … 31] (+)= chains over `steps` features of two panels, for one or two rows, which are too few for a tile.
template <int R, bool add>
void ScorePair(const float* query, int64_t stride, const float* panels, int64_t panel_floats, int64_t steps, float* z) {
  __m256 chain[R][4];
#pragma GCC unroll 2
  for (int r = 0; r < R; ++r) {
    for (int n = 0; n < 4; ++n) chain[r][n] = _mm256_setzero_ps();
  }
  const float* second = panels + panel_floats;
  for (int64_t c = 0; c < steps; ++c) {
#pragma GCC unroll 2
    for (int r = 0; r < R; ++r) {
      const __m256 q = _mm256_broadcast_ss(query + r * stride + c);
      chain[r][0] = Fma8(q, _mm256_load_ps(panels + c * kPanel), chain[r][0]);
      chain[r][1] = Fma8(q, _mm256_load_ps(panels + c * kPanel + 8), chain[r][1]);
      chain[r][2] = Fma8(q, _mm256_load_ps(second + c * kPanel), chain[r][2]);
      chain[r][3] = Fma8(q, _mm256_load_ps(second + c * kPanel + 8), chain[r][3]);
    }
  }
#pragma GCC unroll 2
  for (int r = 0; r < R; ++r) {
    for (int n = 0; n < 4; ++n) {
      float* at = z + r * kKeyBlock + n * 8;
      _mm256_store_ps(at, add ? _mm256_add_ps(_mm256_load_ps(at), chain[r][n]) : chain[r][n]);
    }
  }
}

// o = fma(o, factor, chain of p * v) for keys begin … end - 1 and 8 N features from c on.
template <typename Loader, int R, int N>
[[gnu::noinline]] void AddValues(const Few& f, const Rows& values, int64_t begin, int64_t end, int64_t c,
                                 const float* factor, const Rows& ahead) {
  const int64_t width = c + 8 * N;  // whole eights only
  const int64_t v_dim = f.task->call->shape.v_dim;
  const int64_t ahead_begin = c * ahead.bytes / v_dim, ahead_end = width * ahead.bytes / v_dim;
  __m256 chain[N][R];
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n) {
    for (int r = 0; r < R; ++r) chain[n][r] = _mm256_setzero_ps();
  }
  const float *p = f.z + begin, *scales = values.scale + begin * values.scale_stride;
  const uint8_t* row = values.data + begin * values.stride;
  for (int64_t j = begin; j < end; ++j) {
    Prefetch(ahead, j, ahead_begin, ahead_end);
    const __m256 scale = Loader::kScaled ? _mm256_broadcast_ss(scales) : _mm256_setzero_ps();
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
      __m256 v = Loader::Load(row, c + 8 * n, width);
      if constexpr (Loader::kScaled) v = _mm256_mul_ps(v, scale);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) chain[n][r] = Fma8(_mm256_broadcast_ss(p + r * kKeyBlock), v, chain[n][r]);
    }
    ++p;
    row += values.stride;
    if constexpr (Loader::kScaled) scales += values.scale_stride;
  }
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n) {
    for (int r = 0; r < R; ++r) {
      float* at = f.part.o + r * f.part.stride + c + 8 * n;
      _mm256_store_ps(at, Fma8(_mm256_load_ps(at), Fill8(factor[r]), chain[n][r]));
    }
  }
}

// Soft cap, mask, running maximum and sum of one row; z becomes p.
float SoftmaxRow(const Few& f, int64_t r, int64_t k0, int64_t begin, int64_t end) {
  const AttentionShape& shape = f.task->call->shape;
  float* z = f.z + r * kKeyBlock;
  const int64_t group = shape.query_heads / shape.kv_heads;
  const int64_t position = f.task->sequence->position + (f.task->row_begin + r) / group;
  const KeyRange seen = VisibleKeys(shape, position, f.task->sequence->kv_length);
  const int64_t first = seen.begin - k0 > begin ? seen.begin - k0 : begin;
  const int64_t last = seen.end - k0 < end ? seen.end - k0 : end;
  if (shape.soft_cap > 0) {
    const __m256 cap = Fill8(shape.soft_cap), inverse = Fill8(1.0f / shape.soft_cap);
    for (int64_t j = begin / 8 * 8; j < end; j += 8) {
      _mm256_store_ps(z + j, _mm256_mul_ps(cap, Tanh8(_mm256_mul_ps(_mm256_load_ps(z + j), inverse))));
    }
  }
  for (int64_t j = 0; j < first; ++j) z[j] = -__builtin_inff();
  for (int64_t j = last < 0 ? 0 : last; j < kKeyBlock; ++j) z[j] = -__builtin_inff();
  __m256 top = _mm256_load_ps(z);
#pragma GCC unroll 8
  for (int64_t j = 8; j < kKeyBlock; j += 8) top = _mm256_max_ps(_mm256_load_ps(z + j), top);
  __m128 four = _mm_max_ps(_mm256_castps256_ps128(top), _mm256_extractf128_ps(top, 1));
  four = _mm_max_ps(four, _mm_movehl_ps(four, four));
  const float before = f.part.m[r];
  const float now = Max(_mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four))), before);
  const float correction = Exp(before - now);
  Lanes16 sum;
#pragma GCC unroll 8
  for (int64_t j = 0; j < kKeyBlock; j += 8) {
    const __m256 p = ExpNotPositive8(_mm256_sub_ps(_mm256_load_ps(z + j), Fill8(now)));
    _mm256_store_ps(z + j, p);
    sum.half[j / 8 % 2] = _mm256_add_ps(sum.half[j / 8 % 2], p);
  }
  f.part.m[r] = now;
  f.part.l[r] = Fma(f.part.l[r], correction, sum.Fold());
  return correction;
}

// The block as it is stored.
Rows StoredRows(const KvSide& side, const ForwardTask& task, int64_t k0, int64_t width) {
  Rows rows{KvRow(side, *task.sequence, task.kv_head, k0), side.key_stride, BytesOf(side, width), nullptr,
            side.scale_key_stride};
  if (side.scale != nullptr) rows.scale = KvScaleAt(side, *task.sequence, task.kv_head, k0);
  return rows;
}

// The block as f32 in `buffer`, zeros behind the last key.
Rows LoadedRows(const KvSide& side, const ForwardTask& task, int64_t k0, int64_t width, float* buffer) {
  const int64_t left = task.sequence->kv_length - k0, stride = LocalStride(width);
  LoadKvBlock(side, *task.sequence, task.kv_head, k0, left < kKeyBlock ? left : kKeyBlock, kKeyBlock, width, buffer,
              stride);
  return {reinterpret_cast<const uint8_t*>(buffer), stride * 4, width * 4, nullptr, 0};
}

void Scores(const Few& f, int64_t k0, int64_t begin, int64_t end, const Rows& ahead) {
  const ForwardTask& task = *f.task;
  const KvSide& side = task.call->key;
  const int64_t width = task.call->shape.qk_dim;
  KeyPanelFunction key_panel = KeyPanelOf(side, width);
  if (task.sequence->kv_length - k0 < kKeyBlock) key_panel = nullptr;  // rows behind the last key do not exist
  const Rows keys =
      key_panel != nullptr ? StoredRows(side, task, k0, width) : LoadedRows(side, task, k0, width, f.buffer);
  if (key_panel == nullptr) key_panel = KeyPanel<DwordF32>;
  const int64_t padded = keys.data == reinterpret_cast<const uint8_t*>(f.buffer) ? RoundUp(width, 8) : width;
  for (int64_t j = begin / 32 * 32; j < end; j += 32) {
    for (int64_t leaf = 0; leaf < width; leaf += kDotLeaf) {
      const int64_t steps = width - leaf < kDotLeaf ? width - leaf : kDotLeaf;
      const int64_t leaf_end = padded - leaf < kDotLeaf ? padded : leaf + kDotLeaf;
      constexpr int64_t kFloats = kDotLeaf * kPanel;
      for (int64_t n = 0; n < 2; ++n) key_panel(keys, j + n * kPanel, leaf, leaf_end, ahead, f.panels + n * kFloats);
      const float* query = f.query + leaf;
      float* z = f.z + j;
      if (f.rows == 1) {
        (leaf == 0 ? ScorePair<1, false> : ScorePair<1, true>)(query, f.query_stride, f.panels, kFloats, steps, z);
      } else if (f.rows == 2) {
        (leaf == 0 ? ScorePair<2, false> : ScorePair<2, true>)(query, f.query_stride, f.panels, kFloats, steps, z);
      } else {
        for (int64_t n = 0; n < 2; ++n) {
          const TileArgs tile{query, f.query_stride, f.panels + n * kFloats, kPanel, z + n * kPanel, kKeyBlock,
                              steps, nullptr};
          leaf == 0 ? TileColumn<AForm::kRows, Finish::kStore>(f.rows, tile)
                    : TileColumn<AForm::kRows, Finish::kAdd>(f.rows, tile);
        }
      }
    }
  }
}

// Up to four rows: values go from where they are stored through registers.
template <typename Loader, int R>
void StreamValues(const Few& f, const Rows& values, int64_t begin, int64_t end, const float* factor,
                  const Rows& ahead) {
  constexpr int N = R == 1 ? 8 : (R == 2 ? 4 : 2);
  const int64_t width = RoundUp(f.task->call->shape.v_dim, 8);
  int64_t c = 0;
  for (; c + 8 * N <= width; c += 8 * N) AddValues<Loader, R, N>(f, values, begin, end, c, factor, ahead);
  for (; c < width; c += 8) AddValues<Loader, R, 1>(f, values, begin, end, c, factor, ahead);
}

// More rows: 16 columns at a time are decoded and multiplied as a matrix.
template <typename Loader>
void MultiplyValues(const Few& f, const Rows& values, int64_t begin, int64_t end, const float* factor,
                    const Rows& ahead) {
  const int64_t width = RoundUp(f.task->call->shape.v_dim, 8), columns = f.part.width / kPanel;
  for (int64_t c = 0; c < columns; ++c) {
    for (int64_t j = kKeyBlock * c / columns; j < kKeyBlock * (c + 1) / columns; ++j) {
      Prefetch(ahead, j, 0, ahead.bytes);
    }
    for (int64_t j = begin; j < end; ++j) {
      const __m256 scale = Fill8(Loader::kScaled ? values.scale[j * values.scale_stride] : 1.0f);
      for (int64_t half = 0; half < kPanel; half += 8) {
        __m256 v = _mm256_setzero_ps();
        if (c * kPanel + half < width) v = Loader::Load(values.data + j * values.stride, c * kPanel + half, width);
        _mm256_store_ps(f.panels + j * kPanel + half, Loader::kScaled ? _mm256_mul_ps(v, scale) : v);
      }
    }
    TileColumn<AForm::kRows, Finish::kRescale>(f.rows, {f.z + begin, kKeyBlock, f.panels + begin * kPanel, kPanel,
                                                        f.part.o + c * kPanel, f.part.stride, end - begin, factor});
  }
}

template <typename Loader>
void AllValues(const Few& f, const Rows& values, int64_t begin, int64_t end, const float* factor, const Rows& ahead) {
  switch (f.rows) {
    case 1:
      return StreamValues<Loader, 1>(f, values, begin, end, factor, ahead);
    case 2:
      return StreamValues<Loader, 2>(f, values, begin, end, factor, ahead);
    case 3:
      return StreamValues<Loader, 3>(f, values, begin, end, factor, ahead);
    case 4:
      return StreamValues<Loader, 4>(f, values, begin, end, factor, ahead);
    default:
      return MultiplyValues<Loader>(f, values, begin, end, factor, ahead);
  }
}

void Values(const Few& f, int64_t k0, int64_t begin, int64_t end, const float* factor, const Rows& ahead) {
  const ForwardTask& task = *f.task;
  const KvSide& side = task.call->value;
  const int64_t width = task.call->shape.v_dim;
  if (width % 8 != 0) {
    return AllValues<KvF32>(f, LoadedRows(side, task, k0, width, f.buffer), begin, end, factor, ahead);
  }
  const Rows values = StoredRows(side, task, k0, width);
  WithKvLoader(side, [&](auto loader) { AllValues<decltype(loader)>(f, values, begin, end, factor, ahead); });
}

// One block of keys: scores, softmax, values. While scores are computed the values of the block are fetched, and then
// the next block's keys.
void Block(const Few& f, const KeyRange& seen, int64_t k0, int64_t next) {
  const ForwardTask& task = *f.task;
  const AttentionShape& shape = task.call->shape;
  const int64_t begin = seen.begin > k0 ? seen.begin - k0 : 0;
  const int64_t end = seen.end - k0 < kKeyBlock ? seen.end - k0 : kKeyBlock;
  Scores(f, k0, begin, end, StoredRows(task.call->value, task, k0, shape.v_dim));
  float factor[kFewRows];
  for (int64_t r = 0; r < f.rows; ++r) factor[r] = SoftmaxRow(f, r, k0, begin, end);
  Values(f, k0, begin, end, factor, StoredRows(task.call->key, task, next, shape.qk_dim));
}

void SuperBlock(const Few& f, int64_t super, const KeyRange& seen) {
  ResetRows(f.part, f.rows);
  const int64_t first = super * kSuperBlock > seen.begin ? super * kSuperBlock : seen.begin;
  const int64_t last = (super + 1) * kSuperBlock < seen.end ? (super + 1) * kSuperBlock : seen.end;
  for (int64_t k0 = first / kKeyBlock * kKeyBlock; k0 < last; k0 += kKeyBlock) {
    Block(f, seen, k0, k0 + kKeyBlock < last ? k0 + kKeyBlock : k0);
  }
}

void PackQueries(const Few& f) {
  const ForwardTask& task = *f.task;
  const AttentionShape& shape = task.call->shape;
  const int64_t group = shape.query_heads / shape.kv_heads;
  std::memset(f.query, 0, static_cast<size_t>(kFewRows * f.query_stride) * sizeof(float));
  std::memset(f.z, 0, static_cast<size_t>(kFewRows * kKeyBlock) * sizeof(float));
  for (int64_t r = 0; r < f.rows; ++r) {
    const int64_t row = task.row_begin + r;
    LoadHead(task.call->query, task.sequence->query_begin + row / group, task.kv_head * group + row % group,
             shape.qk_dim, shape.scale, f.query + r * f.query_stride);
  }
}

}  // namespace

int64_t FewScratchAvx2(const AttentionShape& shape) {
  return kFewRows * (RoundUp(shape.qk_dim, kPanel) + kKeyBlock + 2 * LocalStride(shape.v_dim)) + PackedFloats(shape) +
         2 * kDotLeaf * kPanel + 12 * kPanel;
}

void ForwardFewAvx2(const ForwardTask& task, float* scratch) {
  Few f = Layout(task, scratch);
  PackQueries(f);
  ResetRows(f.total, f.rows);
  const KeyRange seen = VisibleOfRows(task);
  for (int64_t super = task.super_begin; super < task.super_end; ++super) {
    if (task.partial != nullptr) {
      float* at = task.partial + (super - task.super_begin) * PartialFloats(task.call->shape, f.rows);
      f.part = PartialAt(task.call->shape, f.rows, at);
    }
    SuperBlock(f, super, seen);
    if (task.partial == nullptr) MergeRows(f.part, f.rows, f.total);
  }
  if (task.partial == nullptr) FinishRows(task, f.total);
}

}  // namespace octavo::kernels
