// Numbers as Python reads and writes them: repr(float), int(str), float(str), fixed and scientific formats. No locale.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace octavo::text::jinja {

// Shortest digits that read back the same: 1.0, 0.1, 1e-05, 1e+16, inf, nan.
std::string FloatRepr(double value);

// printf's %.<precision>f, %e, %g with exact rounding. `alternate` keeps the point and zeros as '#' does.
std::string FormatFixed(double value, int precision, bool alternate = false);
std::string FormatScientific(double value, int precision, bool alternate = false);
std::string FormatGeneral(double value, int precision, bool alternate = false);

enum class IntParse { kOk, kInvalid, kTooLarge };
// int(text, base): blanks around, sign, underscores, and a prefix for bases 0, 2, 8 and 16.
IntParse ParseInt(std::string_view text, int base, int64_t* value);
// float(text): blanks around, underscores, inf, nan.
bool ParseFloat(std::string_view text, double* value);

// `value` in base 2, 8, 10 or 16, lower case, without prefix.
std::string IntToBase(int64_t value, int base);

// int(double); false when it does not fit in 64 bits or is not finite.
bool TruncateToInt(double value, int64_t* result);

}  // namespace octavo::text::jinja
