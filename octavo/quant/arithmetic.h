// The switches of quantized arithmetic that are constants of a run, passed to every function here that computes. The
// defaults give the bits of the reference libraries on a CPU, made independent of batch sizes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace octavo::quant {

// x / y where y is broadcast. The reference turns it into x * fl(1 / y), the reciprocal rounded to the dtype, in f32
// and f16 whenever the result has more elements than y (a constant counts as one); bf16 divides truly. How many
// elements there happen to be depends on the batch, so our own rule asks what the scales were declared to be: a single
// row then has the bits that it has in a batch.
enum class DivisionRule : uint8_t {
  kDeclared,   // reciprocal, except for the one scale of a per-tensor range; equal to kReference for more than one row
  kReference,  // by the number of elements, as the reference does when it is run
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
  DivisionRule division = DivisionRule::kDeclared;
  MxScaleRule mx_scale = MxScaleRule::kFloor;
  NonFinite non_finite = NonFinite::kPropagate;
  std::string_view site = "", operand = "";  // begin error texts; may be empty

  std::string Where(std::string_view op) const;  // "Quantize at decoder/…/wi_0, forward.lhs"
};

}  // namespace octavo::quant
