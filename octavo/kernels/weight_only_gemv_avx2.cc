// Few rows times packed weights. One row decodes in registers on the way into its sums; several rows decode a stretch
// of 64 columns into the first cache and use it for all of them.
#include "octavo/kernels/weight_only_avx2.h"
#include "octavo/kernels/weight_only_codec_avx2.h"

namespace octavo::kernels::internal {
namespace {

constexpr int64_t kLeafDepth = 256;
constexpr int64_t kFetchAhead = 1024;  // bytes; the hardware stops at the end of a page
constexpr int kSums = 8;               // vectors of sums: eight chains hide the latency of an FMA

struct Sums {
  Sums() {
    for (__m256& s : v) s = _mm256_setzero_ps();
  }
  // Keeps the sums in registers at this point: without it g++ parks them on the stack, which adds the latency of a
  // store and a load to every chain.
  OCTAVO_INLINE void Pin() {
    asm volatile("" : "+x"(v[0]), "+x"(v[1]), "+x"(v[2]), "+x"(v[3]));
    asm volatile("" : "+x"(v[4]), "+x"(v[5]), "+x"(v[6]), "+x"(v[7]));
  }
  __m256 v[kSums];
};

// Adds k in [k_begin, k_end), all in one group, to the sums of one row. 64 columns are 1, 2 or 4 panels.
template <bool kScaled, bool kZeroPoints, typename Codec>
inline void AddSegment(const PackedView& view, const Codec& codec, int64_t panel, const float* a, int64_t k_begin,
                       int64_t k_end, Sums& sums) {
  constexpr int kVectors = static_cast<int>(PanelCols(Codec::kPacking) / 8), kPanels = kSums / kVectors;
  constexpr int64_t kBytes = BlockBytes(Codec::kPacking);
  __m256 scale[kSums] = {}, shift[kSums] = {};
  if (kScaled) {
    const int64_t group = (k_begin + view.first) / view.group;
    for (int p = 0; p < kPanels; ++p) {
      LoadScales<kZeroPoints, Codec>(view, panel + p, group, scale + p * kVectors, shift + p * kVectors);
    }
  }
  const int64_t stride = view.PanelBytes();
  const uint8_t* codes = view.codes + panel * stride + k_begin * kBytes;
  for (int64_t k = k_begin; k < k_end; ++k, codes += kBytes) {
    const __m256 x = _mm256_broadcast_ss(a + k);
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) {
      const uint8_t* at = codes + p * stride;
      _mm_prefetch(reinterpret_cast<const char*>(at + kFetchAhead), _MM_HINT_T0);
      codec.Decode(
          at, [&](auto v, __m256 value) __attribute__((always_inline)) {
            const int i = p * kVectors + v;
            sums.v[i] = _mm256_fmadd_ps(x, Scaled<kScaled, kZeroPoints, Codec>(value, scale[i], shift[i]), sums.v[i]);
          });
    }
    sums.Pin();
  }
}

// One row and 64 columns, decoded in registers.
template <bool kScaled, bool kZeroPoints, typename Codec>
void OneRow(const PackedView& view, const Codec& codec, int64_t panel, const float* a, float* out) {
  for (int64_t k0 = 0; k0 < view.depth; k0 += kLeafDepth) {
    const int64_t leaf_end = k0 + kLeafDepth < view.depth ? k0 + kLeafDepth : view.depth;
    Sums leaf;
    for (int64_t k = k0; k < leaf_end;) {
      const int64_t group_end = ((k + view.first) / view.group + 1) * view.group - view.first;
      const int64_t end = group_end < leaf_end ? group_end : leaf_end;
      AddSegment<kScaled, kZeroPoints>(view, codec, panel, a, k, end, leaf);
      k = end;
    }
    for (int i = 0; i < kSums; ++i) {
      float* to = out + 8 * i;
      _mm256_storeu_ps(to, k0 == 0 ? leaf.v[i] : _mm256_add_ps(_mm256_loadu_ps(to), leaf.v[i]));
    }
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
    const int64_t panel = job.col / PanelCols(Codec::kPacking);
    if (!view.has_scales) return OneRow<false, false>(view, codec, panel, job.a, job.sums);
    if (!view.has_zero_points) return OneRow<true, false>(view, codec, panel, job.a, job.sums);
    OneRow<true, true>(view, codec, panel, job.a, job.sums);
  });
}

}  // namespace octavo::kernels::internal
