// Any bytes as a tokenizer.json: loading, encoding and decoding end in a result or in an Error.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "octavo/base/error.h"
#include "octavo/text/stream_decoder.h"
#include "octavo/text/tokenizer.h"
#include "octavo/text/unicode.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace octavo::text;
  // Text to encode stands behind a line of its own, so that files and texts are found together.
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const size_t cut = all.rfind("\n%%\n");
  const std::string_view json = all.substr(0, cut);
  const std::string text =
      cut == std::string_view::npos ? "Hello <s> wörld 日本\n\n 123 it's" : std::string(all.substr(cut + 4));
  try {
    const auto tokenizer = ParseTokenizerJson(json, "fuzz");
    const EncodeOptions options{.add_special = true, .parse_special = true};
    const auto ids = tokenizer->Encode(text, options);
    const Encoding detail = tokenizer->EncodeWithOffsets(text, options);
    if (detail.ids != ids || detail.tokens.size() != ids.size() || detail.bytes.size() != ids.size()) __builtin_trap();
    tokenizer->Decode(ids, {.skip_unknown_ids = true});
    StreamDecoder stream(*tokenizer, {.skip_special = false, .skip_unknown_ids = true});
    for (int32_t id : ids) {
      if (!IsValidUtf8(stream.Push(id))) __builtin_trap();
    }
    if (!IsValidUtf8(stream.Finish())) __builtin_trap();
  } catch (const octavo::Error&) {
  }
  return 0;
}
