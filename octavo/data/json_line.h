// The text of one JSON line: {"text": "…", …}. The rest of the line is checked and thrown away.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "octavo/base/function_ref.h"

namespace octavo::data {

// The value of the first of `columns` that the object has. Throws a file Error that begins with where() ("a.jsonl:12",
// asked only then): not an object, bad JSON with its column, invalid UTF-8, none of the columns, a value that is no
// text.
std::string TextOfJsonLine(std::string_view line, std::span<const std::string> columns,
                           FunctionRef<std::string()> where);

}  // namespace octavo::data
