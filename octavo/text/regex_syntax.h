// Rewrites a pattern from the syntax that tokenizer files are written in (Oniguruma's Ruby syntax, Unicode classes)
// into PCRE2's, where the two mean different things by the same text: \s \w \d \h \v \b, nested classes and &&, {n,m}+,
// {,n}, (?m), \uHHHH, long names of categories, scripts. Used by regex.h only; what means the same in both passes
// through.
#pragma once

#include <string>
#include <string_view>

namespace octavo::text {

// Throws a file Error that quotes the pattern for a construct that has no equivalent. `pattern` is valid UTF-8.
std::string TranslateRegex(std::string_view pattern);

// A pattern that matches exactly `literal`.
std::string QuoteRegex(std::string_view literal);

}  // namespace octavo::text
