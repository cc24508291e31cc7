#include "octavo/kernels/weight_only_avx2.h"
#include "octavo/kernels/weight_only_codec_avx2.h"

namespace octavo::kernels::internal {
namespace {

template <typename Codec>
void Decode(const PackedView& view, const Codec& codec, int64_t panel, int64_t k0, int64_t depth, float* out) {
  constexpr int64_t kSteps = Codec::kSteps;
  const uint8_t* codes = view.codes + panel * view.panel_bytes;
  __m256 scale[2] = {}, zero[2] = {};
  int64_t group_end = k0;  // load at the first k
  for (int64_t block = k0 / kSteps * kSteps; block < k0 + depth; block += kSteps) {
    __m256 w[kSteps][2];
    codec.Decode(codes + block / kSteps * Codec::kBytes, w);
    for (int64_t j = 0; j < kSteps; ++j) {
      const int64_t k = block + j;
      if (k < k0 || k >= k0 + depth) continue;
      if (view.has_scales && k == group_end) {
        const int64_t group = (k + view.first) / view.group;
        LoadEntries(view, view.scales, panel, group, scale);
        if (view.has_zero_points) LoadEntries(view, view.zero_points, panel, group, zero);
        group_end = (group + 1) * view.group - view.first;
      }
      for (int h = 0; h < 2; ++h) {
        __m256 value = w[j][h];
        if (view.has_zero_points) value = _mm256_sub_ps(value, zero[h]);
        if (view.has_scales) value = _mm256_mul_ps(value, scale[h]);
        _mm256_storeu_ps(out + (k - k0) * kPanelCols + 8 * h, value);
      }
    }
  }
}

}  // namespace

void DecodePanelAvx2(const PackedView& view, int64_t panel, int64_t k0, int64_t depth, float* out) {
  WithCodec(view, [&](const auto& codec) { Decode(view, codec, panel, k0, depth, out); });
}

}  // namespace octavo::kernels::internal
