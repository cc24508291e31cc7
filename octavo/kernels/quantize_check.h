// Checks at the door of quantize.h and the scale rule that all its implementations share.
#pragma once

#include "octavo/kernels/quantize.h"

namespace octavo::kernels {

enum class QuantizeStep : uint8_t { kScale, kCodes, kBoth };

void CheckQuantize(const QuantizeArgs& args, QuantizeStep step);
void CheckDequantize(const DequantizeArgs& args);

// absmax [* factor] / bound with the zero guard, rounded as the header says.
float ScaleFromAbsMax(const QuantizeSpec& spec, bool bf16, float absmax);

}  // namespace octavo::kernels
