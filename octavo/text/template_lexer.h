// Cuts a template into tokens with Jinja's rules: trim_blocks and lstrip_blocks on, one newline at the very end
// dropped,
// '-' and '+' whitespace control, raw blocks, comments. Used by the parser only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace octavo::text::jinja {

enum class Token : uint8_t {
  kEnd,
  kData,           // text between tags
  kVariableBegin,  // {{
  kVariableEnd,
  kBlockBegin,  // {%
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
};

struct TokenInfo {
  Token type = Token::kEnd;
  int line = 1;
  size_t position = 0;  // byte in the source
  std::string text;     // data, name, operator, or the decoded string
  int64_t integer = 0;
  double real = 0;
};

// A bound on the source keeps the whole pipeline small.
inline constexpr size_t kMaxTemplateBytes = size_t{256} << 10;

// Makes every line end "\n" and drops one at the end, as Jinja does before it reads.
std::string NormalizeSource(std::string_view source);

// `source` must be normalized. Throws TemplateError.
std::vector<TokenInfo> Tokenize(std::string_view source);

// Up to 60 bytes of the line at `position`, for error messages.
std::string Excerpt(std::string_view source, size_t position);

}  // namespace octavo::text::jinja
