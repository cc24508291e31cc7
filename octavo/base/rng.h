// Random numbers by threefry-2x32, bit for bit as JAX makes them. A key is a value; every number is a function of key
// and index, so nothing here has state and element i never depends on how many others are drawn, by whom or in what
// order. Used for noise, dropout, initial weights and sampling.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace octavo {

// JAX has two layouts of a stream. Partitionable is its default now, and the only one with independent elements; in the
// original one the length of the stream is part of every element.
enum class RngMode : uint8_t { kPartitionable, kOriginal };

// One block of the cipher: two words from a key and a counter of two words.
std::pair<uint32_t, uint32_t> Threefry2x32(uint32_t key0, uint32_t key1, uint32_t counter0, uint32_t counter1);

struct RngKey {
  uint32_t word0 = 0, word1 = 0;
  bool operator==(const RngKey&) const = default;

  // jax.random.PRNGKey.
  static RngKey FromSeed(uint64_t seed) { return {static_cast<uint32_t>(seed >> 32), static_cast<uint32_t>(seed)}; }

  // jax.random.fold_in; the same in both modes.
  RngKey FoldIn(uint32_t data) const;
  // Key `index` of jax.random.split(key, n) in partitionable mode, where it does not depend on n.
  RngKey Split(uint64_t index) const;
  // Key `index` of jax.random.split(key, count) in either mode.
  RngKey Split(uint64_t index, uint64_t count, RngMode mode) const;

  // Element `index` (row-major) of jax.random.bits in partitionable mode.
  uint32_t Bits32(uint64_t index) const;
  uint64_t Bits64(uint64_t index) const;
  uint16_t Bits16(uint64_t index) const { return static_cast<uint16_t>(Bits32(index)); }
  uint8_t Bits8(uint64_t index) const { return static_cast<uint8_t>(Bits32(index)); }

  // Element `index` of a stream of `size` elements of `width` (8, 16, 32 or 64) bits, in either mode.
  uint64_t Bits(int width, uint64_t index, uint64_t size, RngMode mode) const;
};

// From random bits to numbers, as jax.random does it. All results are those of JAX in f32 arithmetic.
float UniformFromBits(uint32_t bits);                                // f32 in [0, 1), 23 bits
float UniformFromBits(uint32_t bits, float minimum, float maximum);  // scaled; never below minimum

// The bits of JAX's bf16 and f16 uniforms in [0, 1), exact in f32: bf16 uses 8 random bits, f16 uses 16.
float UniformBF16FromBits(uint8_t bits);
float UniformF16FromBits(uint16_t bits);

// Standard normal: sqrt(2) * erfinv(u), u uniform in (-1, 1). Equal to JAX to 1e-6 relative, not to the bit.
float NormalFromBits(uint32_t bits);

// Element `index` of jax.random.randint(key, …, minimum, maximum) of `size` int32 elements. `maximum` is exclusive.
int32_t RandomInteger(RngKey key, uint64_t index, uint64_t size, int32_t minimum, int32_t maximum,
                      RngMode mode = RngMode::kPartitionable);

// Element `index` in partitionable mode, for code that draws one number at a time.
inline float Uniform(RngKey key, uint64_t index) { return UniformFromBits(key.Bits32(index)); }
inline float Uniform(RngKey key, uint64_t index, float minimum, float maximum) {
  return UniformFromBits(key.Bits32(index), minimum, maximum);
}
inline float Normal(RngKey key, uint64_t index) { return NormalFromBits(key.Bits32(index)); }

}  // namespace octavo
