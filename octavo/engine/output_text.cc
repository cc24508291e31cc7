#include "octavo/engine/output_text.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace octavo::engine {
namespace {

// Bytes at the end of `text` that could be the beginning of a stop string.
size_t Undecided(std::string_view text, const std::vector<std::string>& stops) {
  size_t longest = 0;
  for (const std::string& stop : stops) {
    for (size_t n = std::min(stop.size() - 1, text.size()); n > longest; --n) {
      if (text.ends_with(std::string_view(stop).substr(0, n))) longest = n;
    }
  }
  return longest;
}

}  // namespace

text::StreamDecoder ContinueText(const text::Tokenizer& tokenizer, std::span<const int32_t> prompt) {
  text::StreamDecoder decoder(tokenizer, {.skip_special = true, .skip_unknown_ids = true});
  // No decoder looks further back than a character made of byte tokens.
  constexpr size_t kLookBack = 8;
  for (const int32_t id : prompt.last(std::min(kLookBack, prompt.size()))) decoder.Push(id);
  return decoder;
}

OutputText::OutputText(const text::Tokenizer& tokenizer, std::span<const int32_t> prompt, std::vector<std::string> stop)
    : decoder_(ContinueText(tokenizer, prompt)), stop_(std::move(stop)) {}

bool OutputText::Push(TokenLogprob token, bool wants_logprobs, bool may_stop, Event& event) {
  const size_t begin = text_.size();
  text_ += decoder_.Push(token.token);
  held_.push_back({std::move(token), begin, text_.size()});
  return Decide(false, wants_logprobs, may_stop, event);
}

bool OutputText::Finish(bool wants_logprobs, bool may_stop, Event& event) {
  text_ += decoder_.Finish();
  if (!held_.empty()) held_.back().end = text_.size();
  return Decide(true, wants_logprobs, may_stop, event);
}

bool OutputText::Decide(bool at_end, bool wants_logprobs, bool may_stop, Event& event) {
  // The stop string that is complete first, wherever the tokens happen to cut the text; of two, the longer one.
  size_t found_begin = 0, found_end = std::string::npos;
  const std::string* found = nullptr;
  for (const std::string& stop : stop_) {
    if (!may_stop) break;
    size_t begin = text_.find(stop);
    while (begin != std::string::npos && begin + stop.size() <= uncounted_) begin = text_.find(stop, begin + 1);
    if (begin == std::string::npos) continue;
    const size_t end = begin + stop.size();
    if (end < found_end || (end == found_end && begin < found_begin)) {
      found_begin = begin;
      found_end = end;
      found = &stop;
    }
  }
  if (found != nullptr) {
    size_t count = 0;
    while (count < held_.size() && held_[count].begin < found_begin) ++count;
    Give(count, found_begin, wants_logprobs, event);
    event.stopped_by = *found;
    text_.clear();
    held_.clear();
    return true;
  }
  if (!may_stop) uncounted_ = text_.size();
  const size_t decided = at_end ? text_.size() : text_.size() - Undecided(text_, stop_);
  size_t count = 0;
  while (count < held_.size() && held_[count].end <= decided) ++count;
  const size_t bytes = count == 0 ? 0 : held_[count - 1].end;
  // Tokens without text yet, such as half a character, wait for the one that completes it.
  if (bytes > 0 || at_end) Give(count, at_end ? text_.size() : bytes, wants_logprobs, event);
  return false;
}

void OutputText::Give(size_t tokens, size_t bytes, bool wants_logprobs, Event& event) {
  event.text.append(text_, 0, bytes);
  text_.erase(0, bytes);
  uncounted_ -= std::min(bytes, uncounted_);
  for (size_t i = 0; i < tokens; ++i) {
    event.tokens.push_back(held_[i].token.token);
    if (wants_logprobs) event.logprobs.push_back(std::move(held_[i].token));
  }
  held_.erase(held_.begin(), held_.begin() + static_cast<std::ptrdiff_t>(tokens));
  for (Held& held : held_) {
    held.begin -= std::min(bytes, held.begin);
    held.end -= std::min(bytes, held.end);
  }
}

}  // namespace octavo::engine
