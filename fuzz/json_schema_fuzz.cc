// Any bytes as a JSON schema; behind a NUL, bytes that choose among the tokens that the constraint allows. What it
// allows it must accept, and it may never stand still before the text can end.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/text/json_schema.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace octavo::text;
  static const auto vocabulary = [] {
    std::vector<std::string> texts;
    for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
    for (const char* text : {"{\"", "\":", "\",\"", "\"}", "null", "],", "}}", "12", "\xC3\xA9", "\xE6\x97"}) {
      texts.emplace_back(text);
    }
    texts.emplace_back();
    return VocabularyBytes::Make(std::vector<std::string_view>(texts.begin(), texts.end()), {266}, size_t{8} << 20);
  }();
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t cut = input.find('\0');
  try {
    const auto constraint = CompileJsonSchema(input.substr(0, cut), vocabulary)->Clone();
    std::string_view choices = cut == std::string_view::npos ? "" : input.substr(cut + 1);
    std::vector<uint32_t> mask(9);
    for (const char choice : choices.substr(0, 200)) {
      constraint->Fill(mask);
      std::vector<int32_t> allowed;
      for (int32_t id = 0; id < 288; ++id) {
        if ((mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0) allowed.push_back(id);
      }
      if (allowed.empty()) __builtin_trap();
      const int32_t token = allowed[static_cast<uint8_t>(choice) % allowed.size()];
      if (!constraint->Accept(token)) __builtin_trap();
      if (token == 266) break;
    }
  } catch (const octavo::Error& error) {
    if (error.code() != octavo::ErrorCode::kUsage) __builtin_trap();
  }
  return 0;
}
