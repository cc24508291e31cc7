// Any bytes as a GGUF file with a vocabulary: reading, encoding and decoding end in a result or in an Error.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "octavo/base/error.h"
#include "octavo/text/gguf_vocab_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace octavo::text;
  constexpr std::string_view kText = "Hello  <s> w\xC3\xB6rld \xE6\x97\xA5 123\n abab";
  try {
    const auto vocabulary = ReadGgufVocabulary({reinterpret_cast<const char*>(data), size}, "fuzz");
    const auto tokenizer = MakeGgufTokenizer(vocabulary, "fuzz");
    const auto ids = tokenizer->Encode(kText, {.add_special = true, .parse_special = true});
    tokenizer->Decode(ids);
  } catch (const octavo::Error&) {
  }
  return 0;
}
