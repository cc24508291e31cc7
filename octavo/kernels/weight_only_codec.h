// What the units that decode packed weights have in common, whatever their instruction set: how a codec is found, the
// loops around the vectors. Everything is a template on something of the unit's own, or local to it: what one unit
// makes with its instructions is then never linked into another's.
#pragma once

#include <cstdint>
#include <type_traits>

#include "octavo/kernels/weight_only_isa.h"

namespace octavo::kernels::internal {

#define OCTAVO_INLINE inline __attribute__((always_inline))

template <int kValue>
using Constant = std::integral_constant<int, kValue>;

constexpr int64_t kLeafDepth = 256;
constexpr int64_t kFetchAhead = 1024;  // bytes; the hardware stops at the end of a page

// True for the packings whose codes carry an offset.
template <typename Codec>
inline constexpr bool kHasOffset = requires {
  Codec::kFactor;
};

// Whether the codec reads this view. There is one for each packing, except that fp8 has one for each number of places
// that it slides to become f16.
template <typename Codec>
bool Reads(const PackedView& view) {
  if constexpr (requires { Codec::kPlaces; }) {
    if (Codec::kPlaces != 8 - view.table.half_shift) return false;
  }
  return view.packing == Codec::kPacking;
}

// The codecs of an instruction set. With calls work(codec) with the one that reads the view.
template <typename... Codecs>
struct CodecList {
  template <typename Work>
  static void With(const PackedView& view, const Work& work) {
    (void)((Reads<Codecs>(view) && (work(Codecs(view)), true)) || ...);
  }
};

// Calls work<scaled, with zero points>().
template <typename Work>
OCTAVO_INLINE void WithScaling(const PackedView& view, const Work& work) {
  if (!view.has_scales) {
    work.template operator()<false, false>();
  } else if (!view.has_zero_points) {
    work.template operator()<true, false>();
  } else {
    work.template operator()<true, true>();
  }
}

// Whether k and every change of group lie between blocks, so that a block has one set of scales.
template <typename Codec>
bool InWholeBlocks(const PackedView& view, int64_t k) {
  constexpr int64_t kSteps = BlockSteps(Codec::kPacking);
  return k % kSteps == 0 && (view.groups == 1 || (view.group % kSteps == 0 && view.first % kSteps == 0));
}

namespace {

inline int64_t EndOfGroup(const PackedView& view, int64_t k) {
  return ((k + view.first) / view.group + 1) * view.group - view.first;
}

}  // namespace

// Several rows: a stretch of 64 columns is decoded into the first cache and used for all of them. kDecode is one of the
// DecodeCols; kAdd(rows, a, w, depth, sums) adds `depth` steps to the chains of all rows and 16 columns, a is
// [depth][rows], w is [depth][16].
template <auto kDecode, auto kAdd>
void SeveralRows(const VectorJob& job) {
  constexpr int64_t kStretch = 64;  // 16 KiB of decoded weights
  alignas(64) float w[kStretch * kVectorCols];
  const PackedView& view = *job.view;
  const int64_t cols = view.cols - job.col < kVectorCols ? view.cols - job.col : kVectorCols;
  const int64_t count = job.rows * kVectorCols;
  for (int64_t k0 = 0; k0 < view.depth; k0 += kLeafDepth) {
    const int64_t leaf_end = k0 + kLeafDepth < view.depth ? k0 + kLeafDepth : view.depth;
    float* leaf = k0 == 0 ? job.sums : job.scratch;
    for (int64_t i = 0; i < count; ++i) leaf[i] = 0;
    for (int64_t k = k0; k < leaf_end; k += kStretch) {
      const int64_t depth = leaf_end - k < kStretch ? leaf_end - k : kStretch;
      kDecode(view, k, depth, job.col, cols, w, kStretch * 16);
      for (int64_t n = 0; n < cols; n += 16) {
        kAdd(job.rows, job.a + k * job.rows, w + n * kStretch, depth, leaf + n);
      }
    }
    if (k0 == 0) continue;
    for (int64_t i = 0; i < count; ++i) job.sums[i] += leaf[i];
  }
}

}  // namespace octavo::kernels::internal
