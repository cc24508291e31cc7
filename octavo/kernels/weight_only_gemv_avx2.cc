// Few rows times packed weights. One row decodes in registers on the way into its sums; several rows decode a stretch
// of 64 columns into the first cache and use it for all of them.
#include "octavo/kernels/weight_only_codec_avx2.h"
#include "octavo/kernels/weight_only_isa.h"
#include "octavo/kernels/weight_only_loops_avx2.h"

namespace octavo::kernels::internal {
namespace {

constexpr int64_t kLeafDepth = 256;
constexpr int64_t kFetchAhead = 1024;  // bytes; the hardware stops at the end of a page

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

// One row and `kVectors` * 8 columns, decoded in registers.
template <bool kScaled, bool kZeroPoints, int kPanels, typename Codec>
void OneRow(const PackedView& view, const Codec& codec, int64_t panel, const float* a, float* out) {
  constexpr int kVectors = static_cast<int>(PanelCols(Codec::kPacking) / 8) * kPanels;
  for (int64_t k0 = 0; k0 < view.depth; k0 += kLeafDepth) {
    const int64_t leaf_end = k0 + kLeafDepth < view.depth ? k0 + kLeafDepth : view.depth;
    Sums<kVectors> leaf;
    for (int64_t k = k0; k < leaf_end;) {
      const int64_t group_end = ((k + view.first) / view.group + 1) * view.group - view.first;
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

// Groups begin where blocks do.
template <typename Codec>
bool InWholeBlocks(const PackedView& view) {
  constexpr int64_t kSteps = BlockSteps(Codec::kPacking);
  return view.groups == 1 || (view.group % kSteps == 0 && view.first % kSteps == 0);
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

void SeveralRows(const VectorJob& job) {
  constexpr int64_t kStretch = 64;  // 16 KiB of decoded weights
  alignas(32) float w[kStretch * kVectorCols];
  const PackedView& view = *job.view;
  const int64_t cols = view.cols - job.col < kVectorCols ? view.cols - job.col : kVectorCols;
  const int64_t count = job.rows * kVectorCols;
  for (int64_t k0 = 0; k0 < view.depth; k0 += kLeafDepth) {
    const int64_t leaf_end = k0 + kLeafDepth < view.depth ? k0 + kLeafDepth : view.depth;
    float* leaf = k0 == 0 ? job.sums : job.scratch;
    for (int64_t i = 0; i < count; ++i) leaf[i] = 0;
    for (int64_t k = k0; k < leaf_end; k += kStretch) {
      const int64_t depth = leaf_end - k < kStretch ? leaf_end - k : kStretch;
      DecodeColsAvx2(view, k, depth, job.col, cols, w, kStretch * 16);
      for (int64_t n = 0; n < cols; n += 16) {
        for (int64_t r = 0; r < job.rows; r += 4) {
          AddRowsOf(job.rows - r, job.a + k * job.rows + r, job.rows, w + n * kStretch, depth,
                    leaf + r * kVectorCols + n);
        }
      }
    }
    if (k0 == 0) continue;
    for (int64_t i = 0; i < count; ++i) job.sums[i] += leaf[i];
  }
}

}  // namespace

void RunVectorAvx2(const VectorJob& job) {
  const PackedView& view = *job.view;
  const bool whole = view.cols - job.col > kVectorCols - PanelCols(view.packing);  // all panels of the job exist
  if (job.rows > 1 || !whole) return SeveralRows(job);
  WithCodec(view, [&]<typename Codec>(const Codec& codec) {
    if (!InWholeBlocks<Codec>(view)) return SeveralRows(job);
    if (!view.has_scales) return OneRowJob<false, false>(job, codec);
    if (!view.has_zero_points) return OneRowJob<true, false>(job, codec);
    OneRowJob<true, true>(job, codec);
  });
}

}  // namespace octavo::kernels::internal
