#include "octavo/kernels/weight_only_codec_avx2.h"

namespace octavo::kernels::internal {
namespace {

// Rows [k0, k0 + depth) of one panel into the f32 panels it spans, as many as there is room for.
template <bool kScaled, bool kZeroPoints, typename Codec>
void DecodePanel(const PackedView& view, const Codec& codec, int64_t panel, int64_t k0, int64_t depth, int64_t cols,
                 float* out, int64_t panel_stride) {
  constexpr int kVectors = static_cast<int>(PanelCols(Codec::kPacking) / 8);
  constexpr int64_t kSteps = BlockSteps(Codec::kPacking), kBytes = BlockBytes(Codec::kPacking);
  __m256 scale[kVectors] = {}, shift[kVectors] = {};
  const uint8_t* codes = view.codes + panel * view.PanelBytes();
  int64_t group_end = k0;  // load at the first k
  const auto one_step = [&](int64_t k, auto wanted) {
    if (k < k0 || k >= k0 + depth) return;
    if (kScaled && k >= group_end) {
      const int64_t group = (k + view.first) / view.group;
      LoadScales<kZeroPoints, Codec>(view, panel, group, scale, shift);
      group_end = (group + 1) * view.group - view.first;
    }
    float* row = out + (k - k0) * 16;
    codec.Decode(codes + k / kSteps * kBytes, [&](auto j, auto v, __m256 value) {
      if (j != wanted || v * 8 >= cols) return;
      _mm256_storeu_ps(row + v / 2 * panel_stride + v % 2 * 8,
                       Scaled<kScaled, kZeroPoints, Codec>(value, scale[v], shift[v]));
    });
  };
  for (int64_t k = k0 / kSteps * kSteps; k < k0 + depth; k += kSteps) {
    one_step(k, Constant<0>());
    if constexpr (kSteps == 2) one_step(k + 1, Constant<1>());
  }
}

}  // namespace

void DecodeColsAvx2(const PackedView& view, int64_t k0, int64_t depth, int64_t col, int64_t cols, float* out,
                    int64_t panel_stride) {
  const int64_t width = PanelCols(view.packing), padded = (cols + 15) / 16 * 16;
  Codecs::With(view, [&](const auto& codec) {
    for (int64_t n = 0; n < cols; n += width) {
      WithScaling(view, [&]<bool kScaled, bool kZeroPoints>() {
        DecodePanel<kScaled, kZeroPoints>(view, codec, (col + n) / width, k0, depth, padded - n,
                                          out + n / 16 * panel_stride, panel_stride);
      });
    }
  });
}

}  // namespace octavo::kernels::internal
