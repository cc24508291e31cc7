// Any bytes as a tiktoken rank file. A byte of its own at the front says whether the 256 bytes are put before it, so
// that short inputs get past the check for them.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "octavo/base/error.h"
#include "octavo/text/pretokenizer_scan.h"
#include "octavo/text/tiktoken.h"

namespace {

std::string AllBytes() {
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string lines;
  for (unsigned byte = 0; byte < 256; ++byte) {
    lines += {kDigits[byte >> 2], kDigits[(byte & 3) << 4], '=', '=', ' '};
    lines += std::to_string(byte) + "\n";
  }
  return lines;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace octavo::text;
  static const std::string bytes = AllBytes();
  if (size == 0) return 0;
  std::string file = data[0] % 2 == 0 ? bytes : "";
  file.append(reinterpret_cast<const char*>(data) + 1, size - 1);
  const TiktokenEncoding encoding{"fuzz", std::string(kLlama3Pattern), {{"<s>", 100000}}, "<s>", "<s>", true};
  constexpr std::string_view kText = "Hello  <s> w\xC3\xB6rld \xE6\x97\xA5 123\n abab";
  try {
    const auto tokenizer = ParseTiktoken(file, "fuzz", encoding);
    const auto ids = tokenizer->Encode(kText);
    if (tokenizer->Decode(ids) != kText) __builtin_trap();
  } catch (const octavo::Error&) {
  }
  return 0;
}
