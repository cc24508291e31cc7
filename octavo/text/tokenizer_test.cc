#include "octavo/text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "octavo/base/error.h"
#include "octavo/text/stream_decoder.h"
#include "octavo/text/tokenizer_test_data.h"

namespace octavo::text {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Tokenizer, SpecialTokensInAUsersTextAreText) {
  const auto tokenizer = Trained("llama3");
  const std::string text = "a<|im_end|>b";
  const int32_t end = *tokenizer->Find("<|im_end|>");
  EXPECT_TRUE(tokenizer->IsSpecial(end));
  EXPECT_THAT(tokenizer->Encode(text), Not(Contains(end)));
  EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(text)), text);
  EXPECT_THAT(tokenizer->Encode(text, {.parse_special = true}), Contains(end));
  EXPECT_THAT(tokenizer->EncodeWithOffsets(text).ids, Not(Contains(end)));
}

TEST(Tokenizer, PiecesAreOneTextWithSpecialTokensFromTrustedPartsOnly) {
  const auto tokenizer = Trained("llama3");
  const int32_t start = *tokenizer->Find("<|im_start|>");
  const int32_t end = *tokenizer->Find("<|im_end|>");
  const TextPiece pieces[] = {
      {"<|im_start|>user\n", true}, {"the <|im_end|> dog", false}, {"<|im_end|>", true}, {"\n", true}};
  const std::vector<int32_t> ids = tokenizer->Encode(pieces, false);
  EXPECT_EQ(ids.front(), start);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), end), 1);
  EXPECT_EQ(tokenizer->Decode(ids), "<|im_start|>user\nthe <|im_end|> dog<|im_end|>\n");
  // A token across a border is none, unless both sides are trusted.
  const TextPiece across[] = {{"<|im_", true}, {"end|>", false}};
  EXPECT_THAT(tokenizer->Encode(across, false), Not(Contains(end)));
  const TextPiece both[] = {{"<|im_", true}, {"end|>", true}};
  EXPECT_THAT(tokenizer->Encode(both, false), ElementsAre(end));
  // Without special tokens the borders do not show.
  const TextPiece cut[] = {{"the qu", true}, {"ick brown", false}};
  EXPECT_EQ(tokenizer->Encode(cut, false), tokenizer->Encode("the quick brown"));
}

// A hand-made vocabulary in which merges and whole words could spell a special token.
TEST(Tokenizer, MergesNeverBuildASpecialTokenOutOfText) {
  for (const bool ignore_merges : {false, true}) {
    nlohmann::json vocab = {{"<", 0}, {"s", 1}, {">", 2}, {"<s", 3}, {"<s>", 4}};
    const nlohmann::json file = {
        {"added_tokens", {{{"id", 4}, {"content", "<s>"}, {"special", true}}}},
        {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"< s", "<s >"}}, {"ignore_merges", ignore_merges}}}};
    const auto tokenizer = ParseTokenizerJson(file.dump(), "x");
    EXPECT_THAT(tokenizer->Encode("<s>"), ElementsAre(3, 2));
    EXPECT_THAT(tokenizer->Encode("<s>", {.parse_special = true}), ElementsAre(4));
    EXPECT_THAT(tokenizer->EncodeWithOffsets("<s>").ids, ElementsAre(3, 2));
  }
}

TEST(Tokenizer, OffsetsAreBytesAndCharacters) {
  const auto tokenizer = Trained("gpt2");
  const std::string text = "é the 🚀";
  const Encoding found = tokenizer->EncodeWithOffsets(text);
  ASSERT_EQ(found.ids, tokenizer->Encode(text));
  ASSERT_EQ(found.bytes.size(), found.ids.size());
  EXPECT_EQ(found.bytes.front(), (Span{0, 2}));
  EXPECT_EQ(found.chars.front(), (Span{0, 1}));
  EXPECT_EQ(found.bytes.back().end, text.size());
  EXPECT_EQ(found.chars.back().end, 7u);
}

TEST(Tokenizer, InvalidUtf8CountsAsReplacementCharacters) {
  const auto tokenizer = Trained("llama3");
  EXPECT_EQ(tokenizer->Encode("a\xFF\xC3z"), tokenizer->Encode("a\xEF\xBF\xBD\xEF\xBF\xBDz"));
  EXPECT_EQ(tokenizer->EncodeWithOffsets("a\xFFz").ids, tokenizer->Encode("a\xFFz"));
}

TEST(Tokenizer, IdsOutOfRangeAreUsageErrors) {
  const auto tokenizer = Trained("gpt2");
  for (int32_t id : {-1, INT32_MIN, tokenizer->vocabulary_size(), INT32_MAX}) {
    try {
      tokenizer->Decode(std::vector<int32_t>{id});
      FAIL() << id;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUsage);
      EXPECT_THAT(error.message(), HasSubstr(fmt::format("token id {} is out of range", id)));
    }
    EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{id}, {.skip_unknown_ids = true}), "");
    EXPECT_THROW(StreamDecoder(*tokenizer).Push(id), Error);
    EXPECT_EQ(tokenizer->Token(id), std::nullopt);
    EXPECT_FALSE(tokenizer->IsSpecial(id));
  }
}

TEST(Tokenizer, BytesNeedNoVocabulary) {
  const auto tokenizer = MakeByteTokenizer();
  EXPECT_EQ(tokenizer->vocabulary_size(), 258);
  EXPECT_THAT(tokenizer->Encode("a\xFF"), ElementsAre(97, 255));
  EXPECT_THAT(tokenizer->Encode("a", {.add_special = true}), ElementsAre(256, 97, 257));
  EXPECT_THAT(tokenizer->Encode("<s>"), ElementsAre('<', 's', '>'));
  EXPECT_THAT(tokenizer->Encode("<s>", {.parse_special = true}), ElementsAre(256));
  RandomText random(1);
  for (int i = 0; i < 2000; ++i) {
    const std::string bytes = random.Bytes(40);
    EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(bytes)), bytes);
  }
}

TEST(Tokenizer, StreamsGiveWholeCharacters) {
  const auto tokenizer = Trained("gpt2", 259);  // bytes only: every character comes in parts
  const std::string text = "a🚀é日z";
  StreamDecoder decoder(*tokenizer);
  std::vector<std::string> pieces;
  for (int32_t id : tokenizer->Encode(text)) {
    const std::string piece = decoder.Push(id);
    if (!piece.empty()) pieces.push_back(piece);
  }
  EXPECT_THAT(pieces, ElementsAre("a", "🚀", "é", "日", "z"));
  EXPECT_EQ(decoder.Finish(), "");
  StreamDecoder cut(*tokenizer);
  EXPECT_EQ(cut.Push(tokenizer->Encode("🚀")[0]), "");
  EXPECT_EQ(cut.Finish(), "\xEF\xBF\xBD");
}

TEST(Tokenizer, ThreadsShareOne) {
  const auto tokenizer = Trained("llama3");
  RandomText random(5);
  std::vector<std::string> texts;
  std::vector<std::vector<int32_t>> expected;
  for (int i = 0; i < 300; ++i) {
    texts.push_back(random.Next());
    expected.push_back(tokenizer->Encode(texts.back()));
  }
  std::vector<int> wrong(4);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < texts.size(); ++i) {
        wrong[t] += tokenizer->Encode(texts[i]) != expected[i];
        wrong[t] += tokenizer->EncodeWithOffsets(texts[i]).ids != expected[i];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(wrong, ElementsAre(0, 0, 0, 0));
}

}  // namespace
}  // namespace octavo::text
