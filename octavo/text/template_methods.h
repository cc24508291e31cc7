// Methods of built-in types, looked up by name. Used by the attribute rules (template_attributes.cc) and by filters
// that do the same as a method.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/text/template_interpreter.h"

namespace octavo::text::jinja {

struct MethodEntry {
  std::string_view name;
  NativeFunction function;
};

// Null when there is no such method.
NativeFunction FindStringMethod(std::string_view name);
NativeFunction FindStringSearchMethod(std::string_view name);  // find, split, replace and their like

// Positional arguments of a built-in method, padded with kMissing up to `most`; keywords are errors.
std::vector<Value> Positional(Interpreter& interpreter, std::string_view method, Arguments& args, size_t least,
                              size_t most);
// A string argument, or TypeError.
const Text& TextArgument(Interpreter& interpreter, std::string_view method, const Value& value);
int64_t IntArgument(Interpreter& interpreter, const Value& value, int64_t otherwise);

// The operations behind the methods. All keep the markup flag of `text`.
enum class Side { kBoth, kLeft, kRight };
Text Strip(const Text& text, const Value& chars, Side side);
Text ToUpper(const Text& text);
Text ToLower(const Text& text);
Text Capitalize(const Text& text);
Text Replace(Interpreter& interpreter, const Text& text, const Text& old, const Text& with, int64_t count);
Text Center(Interpreter& interpreter, const Text& text, int64_t width, const Text& fill);
std::vector<Text> SplitLines(const Text& text, bool keep_ends);
// Splits at most `most` times (none when negative) from the left or the right; an empty `separator` means blanks.
std::vector<Text> Split(const Text& text, std::string_view separator, int64_t most, Side side);

}  // namespace octavo::text::jinja
