// Eight neighbours of a threefry stream at once: the bits of RngKey::Bits32 (base/rng.h) in every lane. For *_avx2.cc
// units only.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace octavo::kernels {
namespace {

template <int kBits>
inline __m256i RotateLeft8(__m256i v) {
  return _mm256_or_si256(_mm256_slli_epi32(v, kBits), _mm256_srli_epi32(v, 32 - kBits));
}

template <int kBits>
inline void ThreefryRound8(__m256i& x0, __m256i& x1) {
  x0 = _mm256_add_epi32(x0, x1);
  x1 = _mm256_xor_si256(RotateLeft8<kBits>(x1), x0);
}

// Bits32(index) … Bits32(index + 7) of the key.
inline __m256i Threefry8(uint32_t key0, uint32_t key1, uint64_t index) {
  const uint32_t low = static_cast<uint32_t>(index), high = static_cast<uint32_t>(index >> 32);
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const uint32_t key2 = key0 ^ key1 ^ 0x1BD11BDAu;
  const auto fill = [](uint32_t v) { return _mm256_set1_epi32(static_cast<int>(v)); };
  __m256i x1 = _mm256_add_epi32(fill(low), lane);
  __m256i x0 = fill(high);
  if (low > 0xfffffff8u) {                 // some lanes have passed 2^32: a carry into the high word
    const __m256i first = fill(0u - low);  // the lane that wraps to 0
    x0 = _mm256_sub_epi32(x0, _mm256_cmpgt_epi32(lane, _mm256_sub_epi32(first, fill(1))));
  }
  x0 = _mm256_add_epi32(x0, fill(key0));
  x1 = _mm256_add_epi32(x1, fill(key1));
  const auto even = [&] {
    ThreefryRound8<13>(x0, x1);
    ThreefryRound8<15>(x0, x1);
    ThreefryRound8<26>(x0, x1);
    ThreefryRound8<6>(x0, x1);
  };
  const auto odd = [&] {
    ThreefryRound8<17>(x0, x1);
    ThreefryRound8<29>(x0, x1);
    ThreefryRound8<16>(x0, x1);
    ThreefryRound8<24>(x0, x1);
  };
  const auto inject = [&](uint32_t a, uint32_t b) {
    x0 = _mm256_add_epi32(x0, fill(a));
    x1 = _mm256_add_epi32(x1, fill(b));
  };
  even(), inject(key1, key2 + 1);
  odd(), inject(key2, key0 + 2);
  even(), inject(key0, key1 + 3);
  odd(), inject(key1, key2 + 4);
  even(), inject(key2, key0 + 5);
  return _mm256_xor_si256(x0, x1);
}

// UniformFromBits in every lane: [0, 1) with 23 bits.
inline __m256 Uniform8(__m256i bits) {
  const __m256i mantissa = _mm256_or_si256(_mm256_srli_epi32(bits, 9), _mm256_set1_epi32(0x3f800000));
  return _mm256_sub_ps(_mm256_castsi256_ps(mantissa), _mm256_set1_ps(1.0f));
}

}  // namespace
}  // namespace octavo::kernels
