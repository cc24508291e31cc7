// Packed weights in AVX-512: decoding to f32 panels, and few rows times packed weights. The same steps and roundings
// per weight as weight_only_codec_avx2.h, sixteen columns at a time.
#include <immintrin.h>

#include "octavo/kernels/weight_only_codec.h"

namespace octavo::kernels::internal {
namespace {

inline __m256i Load32(const uint8_t* at) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)); }
inline __m512 WideBF16(__m256i codes) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(codes), 16));
}

// Each codec decodes one block: use(j, u, values) gets step j and columns 16 u … 16 u + 15, both known to the compiler.
struct CodecF32 {
  static constexpr Packing kPacking = Packing::kF32;
  explicit CodecF32(const PackedView&) {}
  template <typename Use>
  OCTAVO_INLINE void Decode(const uint8_t* at, const Use& use) const {
    use(Constant<0>(), Constant<0>(), _mm512_loadu_ps(at));
  }
};

struct CodecBF16 {
  static constexpr Packing kPacking = Packing::kBF16;
  explicit CodecBF16(const PackedView&) {}
  template <typename Use>
  OCTAVO_INLINE void Decode(const uint8_t* at, const Use& use) const {
    use(Constant<0>(), Constant<0>(), WideBF16(Load32(at)));
  }
};

struct CodecF16 {
  static constexpr Packing kPacking = Packing::kF16;
  explicit CodecF16(const PackedView&) {}
  template <typename Use>
  OCTAVO_INLINE void Decode(const uint8_t* at, const Use& use) const {
    use(Constant<0>(), Constant<0>(), _mm512_cvtph_ps(Load32(at)));
  }
};

struct CodecTableByte {
  static constexpr Packing kPacking = Packing::kTableByte;
  explicit CodecTableByte(const PackedView& view) : values(view.table.value) {}
  template <typename Use>
  OCTAVO_INLINE void Decode(const uint8_t* at, const Use& use) const {
    const __m512i index = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
    use(Constant<0>(), Constant<0>(), _mm512_i32gather_ps(index, values, 4));
  }
  const float* values;
};

// fp8 as f16, see weight_only_codec_avx2.h.
template <int kSlide>
struct CodecHalfByte {
  static constexpr Packing kPacking = Packing::kHalfByte;
  static constexpr int kPlaces = kSlide;
  explicit CodecHalfByte(const PackedView& view)
      : keep(_mm256_set1_epi16(static_cast<int16_t>(0x8000 | 0x7f << (8 - kSlide)))),
        factor(_mm512_set1_ps(view.table.half_factor)),
        has_factor(!view.has_scales) {}
  OCTAVO_INLINE __m512 Float(__m256i words) const {
    const __m512 value = _mm512_cvtph_ps(_mm256_and_si256(_mm256_srai_epi16(words, kSlide), keep));
    return has_factor ? _mm512_mul_ps(value, factor) : value;
  }
  template <typename Use>
  OCTAVO_INLINE void Decode(const uint8_t* at, const Use& use) const {
    const __m256i codes = Load32(at);
    use(Constant<0>(), Constant<0>(), Float(_mm256_slli_epi16(codes, 8)));
    use(Constant<0>(), Constant<1>(), Float(codes));
  }
  __m256i keep;
  __m512 factor;
  bool has_factor;
};

// Codes of the offset packings are masked where they are: lanes 0-7 of vector u hold code v = 2 u of a dword, lanes
// 8-15 code v = 2 u + 1, as whole numbers times kFactor to the power of v. The scales make up for it.
OCTAVO_INLINE __m512i Halves(int low, int high) {
  return _mm512_inserti64x4(_mm512_set1_epi32(low), _mm256_set1_epi32(high), 1);
}
OCTAVO_INLINE __m512 Masked(__m512i codes, __m512i mask) { return _mm512_cvtepi32_ps(_mm512_and_si512(codes, mask)); }

struct CodecOffsetByte {
  static constexpr Packing kPacking = Packing::kOffsetByte;
  static constexpr float kFactor = 256;
  explicit CodecOffsetByte(const PackedView&) {}
  template <int kStep, typename Use>
  OCTAVO_INLINE void Bytes(__m512i twice, const Use& use) const {
    use(Constant<kStep>(), Constant<0>(), Masked(twice, mask0));
    use(Constant<kStep>(), Constant<1>(), Masked(twice, mask1));
  }
  template <typename Use>
  OCTAVO_INLINE void Decode(const uint8_t* at, const Use& use) const {
    Bytes<0>(_mm512_broadcast_i64x4(Load32(at)), use);
  }
  __m512i mask0 = Halves(0xff, 0xff00), mask1 = Halves(0xff0000, static_cast<int>(0xff000000u));
};

struct CodecOffsetNibble {
  static constexpr Packing kPacking = Packing::kOffsetNibble;
  static constexpr float kFactor = 16;
  explicit CodecOffsetNibble(const PackedView&) {}
  template <typename Use>
  OCTAVO_INLINE void Decode(const uint8_t* at, const Use& use) const {
    const __m512i twice = _mm512_broadcast_i64x4(Load32(at)), second = _mm512_srli_epi32(twice, 16);
    use(Constant<0>(), Constant<0>(), Masked(twice, mask0));
    use(Constant<0>(), Constant<1>(), Masked(twice, mask1));
    use(Constant<1>(), Constant<0>(), Masked(second, mask0));
    use(Constant<1>(), Constant<1>(), Masked(second, mask1));
  }
  __m512i mask0 = Halves(0xf, 0xf0), mask1 = Halves(0xf00, 0xf000);
};

struct CodecOffsetLookup : CodecOffsetByte {
  static constexpr Packing kPacking = Packing::kOffsetLookup;
  explicit CodecOffsetLookup(const PackedView& view) : CodecOffsetByte(view) {
    alignas(16) int8_t bytes[16];
    for (int c = 0; c < 16; ++c) bytes[c] = static_cast<int8_t>(static_cast<int>(view.table.value[c]));
    table = _mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(bytes)));
  }
  template <typename Use>
  OCTAVO_INLINE void Decode(const uint8_t* at, const Use& use) const {
    const __m512i twice = _mm512_broadcast_i64x4(Load32(at));
    Bytes<0>(_mm512_shuffle_epi8(table, _mm512_and_si512(twice, nibble)), use);
    Bytes<1>(_mm512_shuffle_epi8(table, _mm512_and_si512(_mm512_srli_epi16(twice, 4), nibble)), use);
  }
  __m512i table, nibble = _mm512_set1_epi8(15);
};

// Any table of 16 values is one register, and a code the index of a lane.
struct CodecNibbleTable {
  static constexpr Packing kPacking = Packing::kNibbleTable;
  explicit CodecNibbleTable(const PackedView& view) : table(_mm512_loadu_ps(view.table.value)) {}
  template <typename Use>
  OCTAVO_INLINE void Decode(const uint8_t* at, const Use& use) const {
    // Bytes 16 h + 4 q + i to the order of the columns: 8 q + 4 h + i.
    const __m256i codes = _mm256_permutevar8x32_epi32(Load32(at), order);
    const __m512i first = _mm512_cvtepu8_epi32(_mm256_castsi256_si128(codes));
    const __m512i second = _mm512_cvtepu8_epi32(_mm256_extracti128_si256(codes, 1));
    use(Constant<0>(), Constant<0>(), _mm512_permutexvar_ps(first, table));
    use(Constant<0>(), Constant<1>(), _mm512_permutexvar_ps(second, table));
    use(Constant<0>(), Constant<2>(), _mm512_permutexvar_ps(_mm512_srli_epi32(first, 4), table));
    use(Constant<0>(), Constant<3>(), _mm512_permutexvar_ps(_mm512_srli_epi32(second, 4), table));
  }
  __m512 table;
  __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
};

template <typename Codec>
inline constexpr int kVectorsOf = static_cast<int>(PanelCols(Codec::kPacking) / 16);

// Scales or zero points of columns 16 u … of one group of one panel.
OCTAVO_INLINE __m512 LoadEntries(const PackedView& view, const void* entries, int64_t at) {
  if (!view.short_scales) return _mm512_loadu_ps(static_cast<const float*>(entries) + at);
  return WideBF16(Load32(reinterpret_cast<const uint8_t*>(static_cast<const uint16_t*>(entries) + at)));
}

// What turns decoded codes into weights: LoadScales of weight_only_codec_avx2.h.
template <bool kZeroPoints, typename Codec>
OCTAVO_INLINE void LoadScales(const PackedView& view, int64_t panel, int64_t group, __m512* scale, __m512* shift) {
  constexpr int kVectors = kVectorsOf<Codec>;
  const int64_t first = (panel * view.groups + group) * kVectors * 16;
  float factor = 1;
  for (int u = 0; u < kVectors; ++u) {
    scale[u] = LoadEntries(view, view.scales, first + 16 * u);
    if (kZeroPoints) shift[u] = LoadEntries(view, view.zero_points, first + 16 * u);
    if constexpr (kHasOffset<Codec>) {
      const float higher = factor * Codec::kFactor;
      const auto halves = [](float low, float high) {
        return _mm512_castsi512_ps(Halves(__builtin_bit_cast(int, low), __builtin_bit_cast(int, high)));
      };
      // The last column of a byte block has no offset.
      const bool has_offset = Codec::kPacking != Packing::kOffsetByte || u == 0;
      if constexpr (kZeroPoints) {
        const __m512 unit = _mm512_set1_ps(view.unit);
        const __m512 zero =
            _mm512_add_ps(_mm512_div_ps(shift[u], unit), halves(view.offset, has_offset ? view.offset : 0.0f));
        shift[u] = _mm512_mul_ps(zero, halves(factor, higher));
        scale[u] = _mm512_mul_ps(_mm512_mul_ps(scale[u], unit), halves(1 / factor, 1 / higher));
      } else {
        const float minus = -view.offset * view.unit;
        shift[u] = _mm512_mul_ps(scale[u], halves(minus, has_offset ? minus : -0.0f));
        scale[u] = _mm512_mul_ps(scale[u], halves(view.unit / factor, view.unit / higher));
      }
      factor = higher * Codec::kFactor;
    }
  }
}

template <bool kScaled, bool kZeroPoints, typename Codec>
OCTAVO_INLINE __m512 Scaled(__m512 codes, const __m512& scale, const __m512& shift) {
  if constexpr (!kScaled) {
    return codes;
  } else if constexpr (kHasOffset<Codec> && !kZeroPoints) {
    return _mm512_fmadd_ps(codes, scale, shift);
  } else if constexpr (kZeroPoints) {
    return _mm512_mul_ps(_mm512_sub_ps(codes, shift), scale);
  } else {
    return _mm512_mul_ps(codes, scale);
  }
}

using Codecs = CodecList<CodecF32, CodecBF16, CodecF16, CodecTableByte, CodecHalfByte<0>, CodecHalfByte<1>,
                         CodecHalfByte<2>, CodecOffsetByte, CodecOffsetNibble, CodecOffsetLookup, CodecNibbleTable>;

// Rows [k0, k0 + depth) of one panel into the f32 panels it spans, as many as there is room for.
template <bool kScaled, bool kZeroPoints, typename Codec>
void DecodePanel(const PackedView& view, const Codec& codec, int64_t panel, int64_t k0, int64_t depth, int64_t cols,
                 float* out, int64_t panel_stride) {
  constexpr int64_t kSteps = BlockSteps(Codec::kPacking), kBytes = BlockBytes(Codec::kPacking);
  const uint8_t* codes = view.codes + panel * view.PanelBytes() + k0 / kSteps * kBytes;
  for (int64_t k = k0; k < k0 + depth;) {
    __m512 scale[kVectorsOf<Codec>], shift[kVectorsOf<Codec>];
    int64_t end = k0 + depth;
    if (kScaled) {
      LoadScales<kZeroPoints, Codec>(view, panel, (k + view.first) / view.group, scale, shift);
      end = EndOfGroup(view, k) < end ? EndOfGroup(view, k) : end;
    }
    for (; k < end; k += kSteps, codes += kBytes) {
      float* row = out + (k - k0) * 16;
      codec.Decode(
          codes, [&](auto j, auto u, __m512 value) __attribute__((always_inline)) {
            if (u * 16 >= cols || k + j >= end) return;
            _mm512_storeu_ps(row + u * panel_stride + j * 16,
                             Scaled<kScaled, kZeroPoints, Codec>(value, scale[u], shift[u]));
          });
    }
  }
}

// ---- one row ----

// Keeps vectors in registers at this point.
OCTAVO_INLINE void Pin(__m512* v) { asm volatile("" : "+v"(v[0]), "+v"(v[1]), "+v"(v[2]), "+v"(v[3])); }

// One row and 64 columns, decoded in registers on the way into the sums.
template <bool kScaled, bool kZeroPoints, typename Codec>
void OneRow(const PackedView& view, const Codec& codec, int64_t col, const float* a, float* out) {
  constexpr int kEach = kVectorsOf<Codec>, kPanels = 4 / kEach;
  constexpr int64_t kSteps = BlockSteps(Codec::kPacking), kBytes = BlockBytes(Codec::kPacking);
  const int64_t panel = col / PanelCols(Codec::kPacking), stride = view.PanelBytes();
  const uint8_t* codes = view.codes + panel * stride;
  for (int64_t k0 = 0; k0 < view.depth; k0 += kLeafDepth) {
    const int64_t leaf_end = k0 + kLeafDepth < view.depth ? k0 + kLeafDepth : view.depth;
    __m512 sum[4];
    for (__m512& s : sum) s = _mm512_setzero_ps();
    for (int64_t k = k0; k < leaf_end;) {
      __m512 scale[4], shift[4];
      int64_t end = leaf_end;
      if (kScaled) {
        for (int p = 0; p < kPanels; ++p) {
          LoadScales<kZeroPoints, Codec>(view, panel + p, (k + view.first) / view.group, scale + p * kEach,
                                         shift + p * kEach);
        }
        end = EndOfGroup(view, k) < end ? EndOfGroup(view, k) : end;
      }
      const auto add = [&](int64_t steps) __attribute__((always_inline)) {
#pragma GCC unroll 4
        for (int p = 0; p < kPanels; ++p) {
          codec.Decode(
              codes + p * stride, [&](auto j, auto u, __m512 value) __attribute__((always_inline)) {
                if (j >= steps) return;
                const int i = p * kEach + u;
                const __m512 w = Scaled<kScaled, kZeroPoints, Codec>(value, scale[i], shift[i]);
                sum[i] = _mm512_fmadd_ps(_mm512_set1_ps(a[k + j]), w, sum[i]);
              });
        }
        Pin(sum);
      };
      for (; k + kSteps <= end; k += kSteps, codes += kBytes) {
        for (int p = 0; p < kPanels; ++p) {
          _mm_prefetch(reinterpret_cast<const char*>(codes + p * stride + kFetchAhead), _MM_HINT_T0);
        }
        add(kSteps);
      }
      if (k < end) {
        add(end - k);
        codes += kBytes;
        k = end;
      }
    }
    for (int i = 0; i < 4; ++i) {
      float* to = out + 16 * i;
      _mm512_storeu_ps(to, k0 == 0 ? sum[i] : _mm512_add_ps(_mm512_loadu_ps(to), sum[i]));
    }
  }
}

// ---- several rows ----

// Adds `depth` steps to the chains of kRows rows and 16 columns. `a` is [depth][kRows], w is [depth][16].
template <int kRows>
void AddRows(const float* a, const float* w, int64_t depth, float* sums) {
  __m512 sum[kRows];
  for (int r = 0; r < kRows; ++r) sum[r] = _mm512_loadu_ps(sums + r * kVectorCols);
  for (int64_t k = 0; k < depth; ++k) {
    const __m512 line = _mm512_load_ps(w + k * 16);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) sum[r] = _mm512_fmadd_ps(_mm512_set1_ps(a[k * kRows + r]), line, sum[r]);
  }
  for (int r = 0; r < kRows; ++r) _mm512_storeu_ps(sums + r * kVectorCols, sum[r]);
}

void AddAllRows(int64_t rows, const float* a, const float* w, int64_t depth, float* sums) {
  constexpr void (*kAdd[])(const float*, const float*, int64_t, float*) = {
      AddRows<1>, AddRows<2>, AddRows<3>, AddRows<4>, AddRows<5>, AddRows<6>, AddRows<7>, AddRows<8>};
  kAdd[rows - 1](a, w, depth, sums);
}

}  // namespace

void DecodeColsAvx512(const PackedView& view, int64_t k0, int64_t depth, int64_t col, int64_t cols, float* out,
                      int64_t panel_stride) {
  const int64_t width = PanelCols(view.packing), padded = (cols + 15) / 16 * 16;
  Codecs::With(view, [&]<typename Codec>(const Codec& codec) {
    if (!InWholeBlocks<Codec>(view, k0)) return DecodeColsAvx2(view, k0, depth, col, cols, out, panel_stride);
    for (int64_t n = 0; n < cols; n += width) {
      WithScaling(view, [&]<bool kScaled, bool kZeroPoints>() {
        DecodePanel<kScaled, kZeroPoints>(view, codec, (col + n) / width, k0, depth, padded - n,
                                          out + n / 16 * panel_stride, panel_stride);
      });
    }
  });
}

void RunVectorAvx512(const VectorJob& job) {
  const PackedView& view = *job.view;
  const bool whole = view.cols - job.col > kVectorCols - PanelCols(view.packing);  // all panels of the job exist
  if (job.rows > 1 || !whole) return SeveralRows<DecodeColsAvx512, AddAllRows>(job);
  Codecs::With(view, [&]<typename Codec>(const Codec& codec) {
    if (!InWholeBlocks<Codec>(view, 0)) return SeveralRows<DecodeColsAvx512, AddAllRows>(job);
    WithScaling(view, [&]<bool kScaled, bool kZeroPoints>() {
      OneRow<kScaled, kZeroPoints>(view, codec, job.col, job.a, job.sums);
    });
  });
}

}  // namespace octavo::kernels::internal
