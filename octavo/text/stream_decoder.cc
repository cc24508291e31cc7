#include "octavo/text/stream_decoder.h"

namespace octavo::text {

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, const DecodeOptions& options)
    : state_(tokenizer.StartDecode(options)) {}

std::string StreamDecoder::Push(int32_t id) {
  std::string text;
  state_->Push(id, text);
  return text;
}

std::string StreamDecoder::Finish() {
  std::string text;
  state_->Finish(text);
  return text;
}

}  // namespace octavo::text
