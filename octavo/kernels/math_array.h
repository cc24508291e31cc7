// The functions of math.h over arrays: y[i] = f(x[i]), the same bits from both instruction sets. Used by elementwise
// ops and by the tests that hold the two versions together. Splits nothing over threads.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "octavo/kernels/isa.h"

namespace octavo::kernels {

enum class MathFunction : uint8_t { kExp, kLog, kTanh, kSigmoid, kErf, kSin, kCos };

inline constexpr std::array kMathFunctions = {MathFunction::kExp,     MathFunction::kLog, MathFunction::kTanh,
                                              MathFunction::kSigmoid, MathFunction::kErf, MathFunction::kSin,
                                              MathFunction::kCos};

std::string_view NameOf(MathFunction function);

// x and y may be the same array. count >= 0.
void ApplyMath(MathFunction function, Isa isa, const float* x, float* y, int64_t count);

}  // namespace octavo::kernels
