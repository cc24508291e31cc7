// Python's two string formats: "%s" % x with tuples and dicts, and "{}".format(...) with its format specifications.
// Literal parts and inserted strings keep who wrote them.
#pragma once

#include <string_view>

#include "octavo/text/template_interpreter.h"

namespace octavo::text::jinja {

Text FormatPercent(Interpreter& interpreter, const Text& format, const Value& arguments);

// str.format with `args`; attribute and item lookups in fields follow the sandbox's rules.
Text FormatBraces(Interpreter& interpreter, const Text& format, const Arguments& args);

}  // namespace octavo::text::jinja
