// What the 16 rows of a panel see, and the mask of one key. For attention_*_avx2.cc only.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace octavo::kernels {
namespace {

// Keys begin[lane] … end[lane] - 1 are visible to a lane. Lanes ascend in position, so both ends ascend too.
struct PanelMask {
  alignas(32) int32_t begin[16], end[16];
  int64_t any_begin, any_end;  // some lane sees these
  int64_t all_begin, all_end;  // every lane sees these

  void Close() {
    any_begin = begin[0];
    all_begin = begin[15];
    all_end = end[0];
    any_end = end[15];
  }

  // Part of a block of 64 keys at k0 that some lane sees, relative to k0; empty when end <= begin.
  int64_t BlockBegin(int64_t k0) const { return any_begin > k0 ? any_begin - k0 : 0; }
  int64_t BlockEnd(int64_t k0) const { return any_end < k0 + 64 ? any_end - k0 : 64; }
  bool Whole(int64_t k0) const { return all_begin <= k0 && all_end >= k0 + 64; }

  // All ones in the lanes of one half that see key k.
  __m256 Sees(int64_t half, __m256i k) const {
    const __m256i first = _mm256_load_si256(reinterpret_cast<const __m256i*>(begin + half));
    const __m256i last = _mm256_load_si256(reinterpret_cast<const __m256i*>(end + half));
    return _mm256_castsi256_ps(_mm256_andnot_si256(_mm256_cmpgt_epi32(first, k), _mm256_cmpgt_epi32(last, k)));
  }
};

}  // namespace
}  // namespace octavo::kernels
