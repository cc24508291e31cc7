// Few rows times packed weights. One row decodes in registers on the way into its sums; several rows decode a stretch
// of 64 columns into the first cache and use it for all of them.
#include "octavo/kernels/weight_only_codec_avx2.h"
#include "octavo/kernels/weight_only_loops_avx2.h"

namespace octavo::kernels::internal {
namespace {

// Sums of one row: four chains (a panel of 32 columns) or eight (64 columns) hide the latency of an FMA.
template <int kVectors>
struct Sums {
  Sums() {
    for (__m256& s : v) s = _mm256_setzero_ps();
  }
  __m256 v[kVectors];
};

// Keeps vectors in registers at this point: without it g++ parks the sums on the stack, which adds the latency of a
// store and a load to every chain.
OCTAVO_INLINE void Pin(__m256* v) { asm volatile("" : "+x"(v[0]), "+x"(v[1]), "+x"(v[2]), "+x"(v[3])); }

// Adds k in [k_begin, k_end), all in one group and beginning with a block, to the sums of one row.
template <bool kScaled, bool kZeroPoints, int kPanels, typename Codec, int kVectors>
inline void AddSegment(const PackedView& view, const Codec& codec, int64_t panel, const float* a, int64_t k_begin,
                       int64_t k_end, Sums<kVectors>& sums) {
  constexpr int kEach = kVectors / kPanels;
  constexpr int64_t kSteps = BlockSteps(Codec::kPacking), kBytes = BlockBytes(Codec::kPacking);
  __m256 scale[kVectors] = {}, shift[kVectors] = {};
  if (kScaled) {
    const int64_t group = (k_begin + view.first) / view.group;
    for (int p = 0; p < kPanels; ++p) {
      LoadScales<kZeroPoints, Codec>(view, panel + p, group, scale + p * kEach, shift + p * kEach);
    }
  }
  const int64_t stride = view.PanelBytes();
  const uint8_t* codes = view.codes + panel * stride + k_begin / kSteps * kBytes;
  const auto add = [&](int64_t k, int64_t steps) __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) {
      const uint8_t* at = codes + p * stride;
      codec.Decode(
          at, [&](auto j, auto v, __m256 value) __attribute__((always_inline)) {
            if (j >= steps) return;
            const int i = p * kEach + v;
            const __m256 w = Scaled<kScaled, kZeroPoints, Codec>(value, scale[i], shift[i]);
            sums.v[i] = _mm256_fmadd_ps(_mm256_broadcast_ss(a + k + j), w, sums.v[i]);
          });
    }
  };
  int64_t k = k_begin;
  if constexpr (kHasOffset<Codec> && !kZeroPoints) {
    if (const int64_t blocks = (k_end - k_begin) / kSteps; blocks > 0) {
      OffsetLoop(codec, codes, a + k, blocks, scale, shift, sums.v);
      k += blocks * kSteps, codes += blocks * kBytes;
    }
  }
  for (; k + kSteps <= k_end; k += kSteps, codes += kBytes) {
    for (int p = 0; p < kPanels; ++p) {
      _mm_prefetch(reinterpret_cast<const char*>(codes + p * stride + kFetchAhead), _MM_HINT_T0);
    }
    add(k, kSteps);
    for (int i = 0; i < kVectors; i += 4) Pin(sums.v + i);
  }
  if (k < k_end) add(k, k_end - k);
}

// One row and `kVectors` * 8 columns, decoded in registers. A function of its own with a codec of its own: amid the
// loops of all the others g++ keeps neither sums nor the codec's constants in registers, which costs up to a third of
// the speed.
template <bool kScaled, bool kZeroPoints, int kPanels, typename Codec>
[[gnu::noinline]] void OneRow(const PackedView& view, const Codec& shared, int64_t panel, const float* a, float* out) {
  const Codec codec = shared;
  constexpr int kVectors = static_cast<int>(PanelCols(Codec::kPacking) / 8) * kPanels;
  for (int64_t k0 = 0; k0 < view.depth; k0 += kLeafDepth) {
    const int64_t leaf_end = k0 + kLeafDepth < view.depth ? k0 + kLeafDepth : view.depth;
    Sums<kVectors> leaf;
    for (int64_t k = k0; k < leaf_end;) {
      const int64_t group_end = EndOfGroup(view, k);
      const int64_t end = group_end < leaf_end ? group_end : leaf_end;
      AddSegment<kScaled, kZeroPoints, kPanels>(view, codec, panel, a, k, end, leaf);
      k = end;
    }
    for (int i = 0; i < kVectors; ++i) {
      float* to = out + 8 * i;
      _mm256_storeu_ps(to, k0 == 0 ? leaf.v[i] : _mm256_add_ps(_mm256_loadu_ps(to), leaf.v[i]));
    }
  }
}

// One row and the job's 64 columns: one to four panels at a time.
template <bool kScaled, bool kZeroPoints, typename Codec>
void OneRowJob(const VectorJob& job, const Codec& codec) {
  constexpr int64_t kWidth = PanelCols(Codec::kPacking);
  constexpr int kPanels = kWidth == 16 ? 4 : 1;
  for (int64_t n = 0; n < kVectorCols; n += kWidth * kPanels) {
    OneRow<kScaled, kZeroPoints, kPanels>(*job.view, codec, (job.col + n) / kWidth, job.a, job.sums + n);
  }
}

// Adds `depth` steps to the chains of kRows rows and 16 columns. `a` is [depth][stride], w is [depth][16].
template <int kRows>
void AddRows(const float* a, int64_t stride, const float* w, int64_t depth, float* sums) {
  __m256 sum[kRows][2];
  for (int r = 0; r < kRows; ++r) {
    for (int h = 0; h < 2; ++h) sum[r][h] = _mm256_loadu_ps(sums + r * kVectorCols + 8 * h);
  }
  for (int64_t k = 0; k < depth; ++k) {
    const __m256 w0 = _mm256_load_ps(w + k * 16), w1 = _mm256_load_ps(w + k * 16 + 8);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const __m256 x = _mm256_broadcast_ss(a + k * stride + r);
      sum[r][0] = _mm256_fmadd_ps(x, w0, sum[r][0]);
      sum[r][1] = _mm256_fmadd_ps(x, w1, sum[r][1]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int h = 0; h < 2; ++h) _mm256_storeu_ps(sums + r * kVectorCols + 8 * h, sum[r][h]);
  }
}

void AddRowsOf(int64_t rows, const float* a, int64_t stride, const float* w, int64_t depth, float* sums) {
  switch (rows) {
    case 1:
      return AddRows<1>(a, stride, w, depth, sums);
    case 2:
      return AddRows<2>(a, stride, w, depth, sums);
    case 3:
      return AddRows<3>(a, stride, w, depth, sums);
    default:
      return AddRows<4>(a, stride, w, depth, sums);
  }
}

// All rows, four at a time.
void AddAllRows(int64_t rows, const float* a, const float* w, int64_t depth, float* sums) {
  for (int64_t r = 0; r < rows; r += 4) AddRowsOf(rows - r, a + r, rows, w, depth, sums + r * kVectorCols);
}

}  // namespace

void RunVectorAvx2(const VectorJob& job) {
  const PackedView& view = *job.view;
  const bool whole = view.cols - job.col > kVectorCols - PanelCols(view.packing);  // all panels of the job exist
  if (job.rows > 1 || !whole) return SeveralRows<DecodeColsAvx2, AddAllRows>(job);
  Codecs::With(view, [&]<typename Codec>(const Codec& codec) {
    if (!InWholeBlocks<Codec>(view, 0)) return SeveralRows<DecodeColsAvx2, AddAllRows>(job);
    WithScaling(view, [&]<bool kScaled, bool kZeroPoints>() { OneRowJob<kScaled, kZeroPoints>(job, codec); });
  });
}

}  // namespace octavo::kernels::internal
