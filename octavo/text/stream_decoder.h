// Text from tokens as they are generated: what each new token adds, never half a UTF-8 character. Used by the engine
// and by `octavo generate`. The pieces together are the text of the whole sequence.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "octavo/text/tokenizer.h"

namespace octavo::text {

class StreamDecoder {
 public:
  // The tokenizer must outlive the decoder.
  explicit StreamDecoder(const Tokenizer& tokenizer, const DecodeOptions& options = {.skip_special = true});

  // The text that the token completes; empty when it is held back.
  std::string Push(int32_t id);
  // What is left at the end, with U+FFFD for bytes that never became a character. Then the decoder is used up.
  std::string Finish();

 private:
  std::unique_ptr<DecodeState> state_;
};

}  // namespace octavo::text
