// What must hold for any text: the short form of `./run bench tokenizer --roundtrip 1000000`.
#include <gtest/gtest.h>

#include "octavo/text/chat_template.h"
#include "octavo/text/pretokenizer_scan.h"
#include "octavo/text/regex.h"
#include "octavo/text/sentencepiece.h"
#include "octavo/text/stream_decoder.h"
#include "octavo/text/template_json.h"
#include "octavo/text/tokenizer_test_data.h"

namespace octavo::text {
namespace {

TEST(TokenizerProperty, ByteLevelRoundTrips) {
  RandomText random(11);
  for (const char* pattern : {"gpt2", "llama3", "qwen2", "o200k"}) {
    const auto tokenizer = Trained(pattern);
    for (int i = 0; i < 5000; ++i) {
      const std::string text = random.Next();
      const std::vector<int32_t> ids = tokenizer->Encode(text);
      ASSERT_EQ(tokenizer->Decode(ids), text) << pattern;
      if (i % 8 != 0) continue;
      ASSERT_EQ(tokenizer->EncodeWithOffsets(text).ids, ids) << pattern << ": " << text;
      StreamDecoder stream(*tokenizer);
      std::string streamed;
      for (int32_t id : ids) {
        const std::string piece = stream.Push(id);
        ASSERT_TRUE(IsValidUtf8(piece));
        streamed += piece;
      }
      ASSERT_EQ(streamed + stream.Finish(), text);
    }
  }
}

// The hand-written scanners give the words of the regular expressions. Characters newer than Unicode 14 are left out:
// PCRE2 does not know their classes.
TEST(TokenizerProperty, ScannersAreTheirPatterns) {
  RandomText random(12);
  const CharClasses& classes = CharClasses::Table();
  for (std::string_view pattern :
       {kGpt2Pattern, kLlama3Pattern, kQwen2Pattern, kQwen35Pattern, kO200kPattern, kCl100kPattern}) {
    const WordScanner scanner = FindWordScanner(pattern);
    ASSERT_NE(scanner, nullptr);
    const Regex regex(pattern);
    int differ = 0, all = 0;
    for (int i = 0; i < 3000; ++i) {
      const std::string text = random.Next();
      std::vector<size_t> scanned, matched;
      for (const char* at = text.data(); at < text.data() + text.size();) {
        at = scanner(classes, at, text.data() + text.size());
        scanned.push_back(static_cast<size_t>(at - text.data()));
      }
      RegexScratch scratch;
      size_t covered = 0;
      regex.FindAll(text, scratch, [&](size_t begin, size_t end) {
        EXPECT_EQ(begin, covered) << pattern;
        covered = end;
        matched.push_back(end);
      });
      ++all;
      differ += scanned != matched;
    }
    // A random character is newer than PCRE2's tables about once in two hundred texts.
    EXPECT_LE(differ, all / 50) << pattern;
  }
}

// Messages that hold the special tokens of a tokenizer: none of them may come out of a user's part.
TEST(TokenizerProperty, MessagesYieldNoSpecialTokens) {
  std::vector<std::pair<std::unique_ptr<Tokenizer>, std::string>> all;  // with the token that templates write
  all.emplace_back(Trained("llama3"), "<|im_start|>");
  all.emplace_back(LoadTokenizer(GoldenPath("tokenizers/bpe_bytelevel")), "<|im_start|>");
  all.emplace_back(LoadTokenizer(GoldenPath("tokenizers/bpe_bytefallback")), "<s>");
  all.emplace_back(LoadTokenizer(GoldenPath("tokenizers/unigram_metaspace")), "<s>");
  all.emplace_back(LoadTokenizer(GoldenPath("tokenizers/spm_bpe")), "<s>");
  RandomText random(13);
  int messages = 0;
  for (const auto& [tokenizer, mark] : all) {
    std::vector<std::string> special;
    for (int32_t id = 0; id < tokenizer->vocabulary_size(); ++id) {
      if (tokenizer->IsSpecial(id)) special.push_back(*tokenizer->Token(id));
    }
    ASSERT_GE(special.size(), 2u);
    const int32_t mark_id = *tokenizer->Find(mark);
    const std::optional<int32_t> unknown =
        tokenizer->Find("<unk>");  // what the tokenizer makes of characters it does not have
    const ChatTemplate chat =
        ChatTemplate::Parse("{% for m in messages %}" + mark + "{{ m.role }}\n{{ m.content }}{% endfor %}");
    for (int i = 0; i < 1000; ++i) {
      ChatInputs inputs;
      std::string json = "[";
      for (int turn = 0; turn < 2; ++turn, ++messages) {
        std::string content = random.Below(2) == 0 ? "hi" : "";
        for (size_t parts = 1 + random.Below(5); parts > 0; --parts) {
          content += special[random.Below(special.size())];
          if (random.Below(2) == 0) content += " x";
        }
        json += std::string(turn == 0 ? "" : ",") + R"({"role":"user","content":")" + content + "\"}";
      }
      inputs.messages = jinja::ParseJson(json + "]");
      const Rendered rendered = chat.Render(inputs);
      const std::vector<TextPiece> pieces = rendered.Pieces();
      int marks = 0, others = 0;
      for (int32_t id : tokenizer->Encode(pieces, false)) {
        if (!tokenizer->IsSpecial(id) || id == unknown) continue;
        (id == mark_id ? marks : others) += 1;
      }
      ASSERT_EQ(marks, 2) << rendered.text;
      ASSERT_EQ(others, 0) << rendered.text;
    }
  }
  EXPECT_EQ(messages, 10000);
}

// SentencePiece BPE without the library's cost gives the library's ids.
TEST(TokenizerProperty, FastSentencePieceIsTheLibrary) {
  const std::string bytes = ReadTestFile(GoldenPath("tokenizers/spm_bpe/tokenizer.model"));
  const auto fast = ParseSentencePiece(bytes, "fast");
  SentencePieceOptions library;
  library.library_only = true;
  const auto slow = ParseSentencePiece(bytes, "slow", library);
  RandomText random(14);
  for (int i = 0; i < 5000; ++i) {
    const std::string text = i % 4 == 0 ? random.Bytes(30) : random.Next();
    ASSERT_EQ(fast->Encode(text), slow->Encode(text)) << text;
  }
}

}  // namespace
}  // namespace octavo::text
