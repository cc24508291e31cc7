// Any bytes as a SentencePiece .model: loading, encoding and decoding end in a result or in an Error.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "octavo/base/error.h"
#include "octavo/text/sentencepiece.h"
#include "octavo/text/stream_decoder.h"
#include "octavo/text/unicode.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace octavo::text;
  constexpr std::string_view kText = "Hello  <s> w\xC3\xB6rld \xE6\x97\xA5 \xFF 123\n abab";
  try {
    const auto tokenizer = ParseSentencePiece({reinterpret_cast<const char*>(data), size}, "fuzz");
    const auto ids = tokenizer->Encode(kText, {.add_special = true, .parse_special = true});
    if (tokenizer->EncodeWithOffsets(kText, {.add_special = true, .parse_special = true}).ids != ids) __builtin_trap();
    tokenizer->Decode(ids);
    StreamDecoder stream(*tokenizer);
    for (int32_t id : ids) {
      if (!IsValidUtf8(stream.Push(id))) __builtin_trap();
    }
  } catch (const octavo::Error&) {
  }
  return 0;
}
