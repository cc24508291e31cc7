// The text of one sample as its tokens come: whole characters, and nothing that could still turn out to be a stop
// string. Used by the implementations of Service. It decides when a stop string ends a text; ids that end it are the
// scheduler's business.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "octavo/engine/request.h"
#include "octavo/text/stream_decoder.h"

namespace octavo::engine {

// A decoder of what comes after the prompt. It continues the prompt's text: a blank at its beginning is one, not the
// start of a sentence that SentencePiece's decoder would drop. The tokenizer must outlive it.
text::StreamDecoder ContinueText(const text::Tokenizer& tokenizer, std::span<const int32_t> prompt);

class OutputText {
 public:
  // The tokenizer must outlive this.
  OutputText(const text::Tokenizer& tokenizer, std::span<const int32_t> prompt, std::vector<std::string> stop);

  // Takes a token and appends to `event` the tokens that are decided, with their text. A token is given with all of its
  // text or not yet. With `may_stop` false no stop string counts that this token completes (min_new_tokens).
  // True: a stop string ended the text; `event` then holds what came before it, and the name of it.
  bool Push(TokenLogprob token, bool wants_logprobs, bool may_stop, Event& event);
  // The text ended otherwise: everything that was held back. It may still hold a stop string made by the last bytes.
  bool Finish(bool wants_logprobs, bool may_stop, Event& event);

 private:
  struct Held {
    TokenLogprob token;
    size_t begin = 0, end = 0;  // in text_
  };
  bool Decide(bool at_end, bool wants_logprobs, bool may_stop, Event& event);
  void Give(size_t tokens, size_t bytes, bool wants_logprobs, Event& event);

  text::StreamDecoder decoder_;
  std::vector<std::string> stop_;
  std::string text_;      // not given yet
  size_t uncounted_ = 0;  // of text_: stop strings that end in here came too early
  std::vector<Held> held_;
};

}  // namespace octavo::engine
