// Few rows times packed weights. One row decodes in registers on the way into the sums; several rows decode a leaf of a
// panel into the first cache and use it for all of them.
#include "octavo/kernels/weight_only_avx2.h"
#include "octavo/kernels/weight_only_codec_avx2.h"

namespace octavo::kernels::internal {
namespace {

constexpr int64_t kLeafDepth = 256;
constexpr int64_t kFetchAhead = 1024;  // bytes; the hardware stops at the end of a page

// Which scales a segment uses.
enum class Scaling { kNone, kScale, kZeroPointAndScale };

template <int kPanels>
struct Sums {
  Sums() {
    for (auto& pair : v) pair[0] = pair[1] = _mm256_setzero_ps();
  }
  __m256 v[kPanels][2];
};

// Adds k in [k_begin, k_end), all in one group and in whole blocks of the codec, to the sums of one row.
template <Scaling kScaling, int kPanels, typename Codec>
inline void AddSegment(const PackedView& view, const Codec& codec, int64_t panel, const float* a, int64_t k_begin,
                       int64_t k_end, Sums<kPanels>& sums) {
  constexpr int kSteps = Codec::kSteps;
  __m256 scale[kPanels][2], zero[kPanels][2];
  for (int p = 0; p < kPanels; ++p) {
    const int64_t group = (k_begin + view.first) / view.group;
    if (kScaling != Scaling::kNone) LoadEntries(view, view.scales, panel + p, group, scale[p]);
    if (kScaling == Scaling::kZeroPointAndScale) LoadEntries(view, view.zero_points, panel + p, group, zero[p]);
  }
  const uint8_t* codes = view.codes + panel * view.panel_bytes + k_begin / kSteps * Codec::kBytes;
  for (int64_t k = k_begin; k < k_end; k += kSteps, codes += Codec::kBytes) {
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) {
      const uint8_t* at = codes + p * view.panel_bytes;
      _mm_prefetch(reinterpret_cast<const char*>(at + kFetchAhead), _MM_HINT_T0);
      __m256 w[kSteps][2];
      codec.Decode(at, w);
#pragma GCC unroll 4
      for (int j = 0; j < kSteps; ++j) {
        const __m256 x = _mm256_broadcast_ss(a + k + j);
#pragma GCC unroll 2
        for (int h = 0; h < 2; ++h) {
          __m256 value = w[j][h];
          if (kScaling == Scaling::kZeroPointAndScale) value = _mm256_sub_ps(value, zero[p][h]);
          if (kScaling != Scaling::kNone) value = _mm256_mul_ps(value, scale[p][h]);
          sums.v[p][h] = _mm256_fmadd_ps(x, value, sums.v[p][h]);
        }
      }
    }
  }
}

// One row, whole leaves of `kPanels` panels, decoded in registers.
template <Scaling kScaling, int kPanels, typename Codec>
void OneRow(const PackedView& view, const Codec& codec, int64_t panel, const float* a, float* out) {
  Sums<kPanels> total;
  for (int64_t k0 = 0; k0 < view.depth; k0 += kLeafDepth) {
    const int64_t leaf_end = k0 + kLeafDepth < view.depth ? k0 + kLeafDepth : view.depth;
    Sums<kPanels> leaf;
    for (int64_t k = k0; k < leaf_end;) {
      const int64_t group_end = ((k + view.first) / view.group + 1) * view.group - view.first;
      const int64_t end = group_end < leaf_end ? group_end : leaf_end;
      AddSegment<kScaling, kPanels>(view, codec, panel, a, k, end, leaf);
      k = end;
    }
    for (int p = 0; p < kPanels; ++p) {
      for (int h = 0; h < 2; ++h) {
        total.v[p][h] = k0 == 0 ? leaf.v[p][h] : _mm256_add_ps(total.v[p][h], leaf.v[p][h]);
      }
    }
  }
  for (int p = 0; p < kPanels; ++p) {
    for (int h = 0; h < 2; ++h) _mm256_storeu_ps(out + p * kPanelCols + 8 * h, total.v[p][h]);
  }
}

template <int kPanels, typename Codec>
void OneRowScaled(const PackedView& view, const Codec& codec, int64_t panel, const float* a, float* out) {
  if (!view.has_scales) return OneRow<Scaling::kNone, kPanels>(view, codec, panel, a, out);
  if (!view.has_zero_points) return OneRow<Scaling::kScale, kPanels>(view, codec, panel, a, out);
  OneRow<Scaling::kZeroPointAndScale, kPanels>(view, codec, panel, a, out);
}

// Blocks of the codec never straddle two groups or the end of K.
template <typename Codec>
bool InWholeBlocks(const PackedView& view) {
  if (view.depth % Codec::kSteps != 0) return false;
  return view.groups == 1 || (view.group % Codec::kSteps == 0 && view.first % Codec::kSteps == 0);
}

// sums[kRows][16] of one leaf from decoded weights w[depth][16]; `a` is [depth][stride].
template <int kRows>
void RowsOfLeaf(const float* a, int64_t stride, const float* w, int64_t depth, bool first, float* sums,
                int64_t sums_stride) {
  __m256 sum[kRows][2];
  for (auto& s : sum) s[0] = s[1] = _mm256_setzero_ps();
  for (int64_t k = 0; k < depth; ++k) {
    const __m256 w0 = _mm256_load_ps(w + k * kPanelCols), w1 = _mm256_load_ps(w + k * kPanelCols + 8);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const __m256 x = _mm256_broadcast_ss(a + k * stride + r);
      sum[r][0] = _mm256_fmadd_ps(x, w0, sum[r][0]);
      sum[r][1] = _mm256_fmadd_ps(x, w1, sum[r][1]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int h = 0; h < 2; ++h) {
      float* to = sums + r * sums_stride + 8 * h;
      _mm256_storeu_ps(to, first ? sum[r][h] : _mm256_add_ps(_mm256_loadu_ps(to), sum[r][h]));
    }
  }
}

void SeveralRows(const VectorJob& job) {
  alignas(32) float w[kLeafDepth * kPanelCols];
  const PackedView& view = *job.view;
  for (int64_t p = 0; p < job.panels; ++p) {
    for (int64_t k0 = 0; k0 < view.depth; k0 += kLeafDepth) {
      const int64_t depth = view.depth - k0 < kLeafDepth ? view.depth - k0 : kLeafDepth;
      DecodePanelAvx2(view, job.panel + p, k0, depth, w);
      for (int64_t r = 0; r < job.rows; r += 4) {
        const float* a = job.a + k0 * job.rows + r;
        float* sums = job.sums + r * job.sums_stride + p * kPanelCols;
        const auto run = [&]<int kRows>() { RowsOfLeaf<kRows>(a, job.rows, w, depth, k0 == 0, sums, job.sums_stride); };
        switch (job.rows - r) {
          case 1:
            run.template operator()<1>();
            break;
          case 2:
            run.template operator()<2>();
            break;
          case 3:
            run.template operator()<3>();
            break;
          default:
            run.template operator()<4>();
        }
      }
    }
  }
}

}  // namespace

void RunVectorAvx2(const VectorJob& job) {
  const PackedView& view = *job.view;
  if (job.rows > 1) return SeveralRows(job);
  WithCodec(view, [&]<typename Codec>(const Codec& codec) {
    if (!InWholeBlocks<Codec>(view)) return SeveralRows(job);
    if (job.panels == 2) {
      OneRowScaled<2>(view, codec, job.panel, job.a, job.sums);
    } else {
      OneRowScaled<1>(view, codec, job.panel, job.a, job.sums);
    }
  });
}

}  // namespace octavo::kernels::internal
