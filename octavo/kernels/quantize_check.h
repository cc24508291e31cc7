// Checks at the door of quantize.h.
#pragma once

#include "octavo/kernels/quantize.h"

namespace octavo::kernels {

enum class QuantizeStep : uint8_t { kScale, kCodes, kBoth };

void CheckQuantize(const QuantizeArgs& args, QuantizeStep step);
void CheckDequantize(const DequantizeArgs& args);

}  // namespace octavo::kernels
