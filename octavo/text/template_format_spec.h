// Format specifications, [[fill]align][sign][#][0][width][,][.precision][type], and how numbers and strings look under
// them. Shared by the two string formats.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "octavo/text/template_interpreter.h"

namespace octavo::text::jinja {

struct FormatSpec {
  std::string fill = " ";
  char align = 0;  // < > ^ =, or 0: the type's own
  char sign = '-';
  bool alternate = false;
  bool zero = false;
  int64_t width = 0;
  char grouping = 0;  // , or _
  int64_t precision = -1;
  char type = 0;
};

// Fails when a width or precision cannot be meant.
void CheckFormatWidth(Interpreter& interpreter, int64_t width);

// Type d, x, X, o, b; d when none.
std::string FormatInteger(int64_t value, const FormatSpec& spec);
// Type e, E, f, F, g, G, %; none: like repr.
std::string FormatReal(double value, const FormatSpec& spec);
Text FormatText(const Text& text, const FormatSpec& spec);

// format(value, spec) of Python for any value, errors included.
Text FormatValue(Interpreter& interpreter, const Value& value, std::string_view spec);

}  // namespace octavo::text::jinja
