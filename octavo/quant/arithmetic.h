// The switches of quantized arithmetic that are constants of a run, passed to every function here that computes. The
// defaults give the bits of the reference libraries on a CPU.
#pragma once

#include <cstdint>
#include <string_view>

namespace octavo::quant {

// x / y where y is broadcast (the result has more elements than y; a constant counts as one).
enum class DivisionRule : uint8_t {
  kReference,  // f32 and f16: x * fl(1 / y), the reciprocal rounded to that type; bf16: a true division
  kTrue,       // always a true division
};

// How the scale of an mx block becomes a power of two.
enum class MxScaleRule : uint8_t {
  kFloor,     // 2^floor(log2(bf16(scale * c))), c = 12/7 for 4 bits and 60/31 for 8: rounds up only near the top
  kCeilLog2,  // 2^ceil(log2(scale)), of an earlier release of the reference
};

// What NaN or infinity in a tensor that is calibrated means.
enum class NonFinite : uint8_t { kPropagate, kError };

struct Arithmetic {
  DivisionRule division = DivisionRule::kReference;
  MxScaleRule mx_scale = MxScaleRule::kFloor;
  NonFinite non_finite = NonFinite::kPropagate;
  std::string_view site = "";  // begins error texts; may be empty
};

}  // namespace octavo::quant
