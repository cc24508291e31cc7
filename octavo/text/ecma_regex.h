// The regular expressions of JSON schemas (the regular part of ECMAScript's) as automata over the bytes that a JSON
// string with the text has: characters that JSON escapes are escaped here. Used by structured output. Look-around,
// back references and word boundaries are refused: they are not what a finite automaton can do in bounded space.
#pragma once

#include <string_view>

#include "octavo/text/byte_dfa.h"

namespace octavo::text {

// The content of the strings in which the pattern is found (anywhere, unless it has anchors). Throws a usage Error that
// says what of the pattern is not supported.
ByteDfa CompilePattern(std::string_view pattern, const ByteDfaLimits& limits = {});

// One character of a JSON string in any spelling that JSON has for it; no text is the beginning of another.
ByteDfa CompileJsonChar();

// Characters as they are, without escapes, any number.
ByteDfa CompilePlainChars();

}  // namespace octavo::text
