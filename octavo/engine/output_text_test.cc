#include "octavo/engine/output_text.h"

#include <gtest/gtest.h>

#include "octavo/text/tokenizer.h"

namespace octavo::engine {
namespace {

// "aba" holds the stop string "ab" and ends with what could begin another one, so its text is held back. It came when
// no stop string counted: the next token must not find it.
TEST(OutputText, WhatCameTooEarlyDoesNotStopLater) {
  const auto tokenizer = text::ParseTokenizerJson(
      R"({"added_tokens": [], "decoder": {"type": "Fuse"},
          "model": {"type": "BPE", "vocab": {"aba": 0, "c": 1, "b": 2}, "merges": []}})",
      "words");
  const auto text_of = [&](std::vector<int32_t> ids, std::string& stopped_by) {
    OutputText text(*tokenizer, {}, {"ab"});
    Event event;
    for (size_t i = 0; i < ids.size(); ++i) {
      if (text.Push({ids[i], 0, {}}, false, i > 0, event)) break;
    }
    if (event.stopped_by.empty()) text.Finish(false, true, event);
    stopped_by = event.stopped_by;
    return event.text;
  };
  std::string stopped_by;
  EXPECT_EQ(text_of({0, 1}, stopped_by), "abac");
  EXPECT_EQ(stopped_by, "");
  // What the next token completes counts, though it began before.
  EXPECT_EQ(text_of({0, 2}, stopped_by), "ab");
  EXPECT_EQ(stopped_by, "ab");
  EXPECT_EQ(text_of({0, 1, 0, 1}, stopped_by), "abac");
  EXPECT_EQ(stopped_by, "ab");
  // At the end of the text as well.
  EXPECT_EQ(text_of({0}, stopped_by), "aba");
  EXPECT_EQ(stopped_by, "");
}

}  // namespace
}  // namespace octavo::engine
