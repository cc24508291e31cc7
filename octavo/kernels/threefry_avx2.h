// Neighbours of a threefry stream, eight to a register: the bits of RngKey::Bits32 (base/rng.h) in every lane. For
// *_avx2.cc units only.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace octavo::kernels {
namespace {

// Rotations by whole bytes are one shuffle.
template <int kBits>
inline __m256i RotateLeft8(__m256i v) {
  if constexpr (kBits == 16 || kBits == 24) {
    constexpr int k = 4 - kBits / 8;
    const __m128i order =
        _mm_setr_epi8(k & 3, (k + 1) & 3, (k + 2) & 3, (k + 3) & 3, 4 + (k & 3), 4 + ((k + 1) & 3), 4 + ((k + 2) & 3),
                      4 + ((k + 3) & 3), 8 + (k & 3), 8 + ((k + 1) & 3), 8 + ((k + 2) & 3), 8 + ((k + 3) & 3),
                      12 + (k & 3), 12 + ((k + 1) & 3), 12 + ((k + 2) & 3), 12 + ((k + 3) & 3));
    return _mm256_shuffle_epi8(v, _mm256_broadcastsi128_si256(order));
  }
  return _mm256_or_si256(_mm256_slli_epi32(v, kBits), _mm256_srli_epi32(v, 32 - kBits));
}

// kWidth groups of eight side by side: one group alone waits for its own chain of 20 rounds.
template <int kWidth>
struct Threefry {
  __m256i x0[kWidth], x1[kWidth];

  template <int kBits>
  void Round() {
    for (int k = 0; k < kWidth; ++k) {
      x0[k] = _mm256_add_epi32(x0[k], x1[k]);
      x1[k] = _mm256_xor_si256(RotateLeft8<kBits>(x1[k]), x0[k]);
    }
  }
  void Even() { Round<13>(), Round<15>(), Round<26>(), Round<6>(); }
  void Odd() { Round<17>(), Round<29>(), Round<16>(), Round<24>(); }
  void Inject(uint32_t a, uint32_t b) {
    for (int k = 0; k < kWidth; ++k) {
      x0[k] = _mm256_add_epi32(x0[k], _mm256_set1_epi32(static_cast<int>(a)));
      x1[k] = _mm256_add_epi32(x1[k], _mm256_set1_epi32(static_cast<int>(b)));
    }
  }
};

// bits[k] = Bits32(index + 8 k) … Bits32(index + 8 k + 7) of the key.
template <int kWidth>
inline void ThreefryBits(uint32_t key0, uint32_t key1, uint64_t index, __m256i (&bits)[kWidth]) {
  const uint32_t key2 = key0 ^ key1 ^ 0x1BD11BDAu;
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  Threefry<kWidth> state;
  for (int k = 0; k < kWidth; ++k) {
    const uint64_t first = index + 8 * static_cast<uint64_t>(k);
    const uint32_t low = static_cast<uint32_t>(first), high = static_cast<uint32_t>(first >> 32);
    state.x0[k] = _mm256_set1_epi32(static_cast<int>(high));
    state.x1[k] = _mm256_add_epi32(_mm256_set1_epi32(static_cast<int>(low)), lane);
    if (low > 0xfffffff8u) {  // the lanes from 2^32 - low on have wrapped: a carry into the high word
      const __m256i last = _mm256_set1_epi32(static_cast<int>(0u - low) - 1);
      state.x0[k] = _mm256_sub_epi32(state.x0[k], _mm256_cmpgt_epi32(lane, last));
    }
  }
  state.Inject(key0, key1);
  state.Even(), state.Inject(key1, key2 + 1);
  state.Odd(), state.Inject(key2, key0 + 2);
  state.Even(), state.Inject(key0, key1 + 3);
  state.Odd(), state.Inject(key1, key2 + 4);
  state.Even(), state.Inject(key2, key0 + 5);
  for (int k = 0; k < kWidth; ++k) bits[k] = _mm256_xor_si256(state.x0[k], state.x1[k]);
}

// UniformFromBits in every lane: [0, 1) with 23 bits.
inline __m256 Uniform8(__m256i bits) {
  const __m256i mantissa = _mm256_or_si256(_mm256_srli_epi32(bits, 9), _mm256_set1_epi32(0x3f800000));
  return _mm256_sub_ps(_mm256_castsi256_ps(mantissa), _mm256_set1_ps(1.0f));
}

}  // namespace
}  // namespace octavo::kernels
