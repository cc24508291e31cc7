#include "octavo/text/bpe_trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "octavo/base/error_test_support.h"
#include "octavo/text/bpe_trainer_words.h"
#include "octavo/text/tokenizer_bytechars.h"
#include "octavo/text/tokenizer_test_data.h"

namespace octavo::text {
namespace {

using ::testing::HasSubstr;

std::string SomeText(uint64_t seed, int lines) {
  RandomText random(seed);
  std::string text;
  for (int i = 0; i < lines; ++i)
    text += random.Next() + (i % 3 == 0 ? "\nthe next line" : " ") + std::string(kTrainingText);
  return text;
}

// The plain way: count all pairs anew for each merge.
std::vector<std::pair<std::string, std::string>> TrainSlowly(std::string_view text, const BpeTrainerOptions& options) {
  ThreadPool pool(1);
  const std::string_view texts[] = {text};
  std::vector<std::pair<std::vector<int32_t>, int64_t>> words;
  std::vector<std::string> tokens = options.special_tokens;
  std::map<char32_t, int> order;
  for (int byte = 0; byte < 256; ++byte) order[ByteChars256()[static_cast<size_t>(byte)]] = byte;
  std::vector<int32_t> byte_ids(256);
  for (const auto& [c, byte] : order) {
    byte_ids[static_cast<size_t>(byte)] = static_cast<int32_t>(tokens.size());
    tokens.emplace_back(1, static_cast<char>(byte));
  }
  for (const CountedWord& word : CountWords(texts, options.pattern, pool)) {
    std::vector<int32_t> ids;
    for (char byte : word.text) ids.push_back(byte_ids[static_cast<unsigned char>(byte)]);
    words.emplace_back(ids, word.count);
  }
  std::vector<std::pair<std::string, std::string>> merges;
  while (tokens.size() < static_cast<size_t>(options.vocabulary_size)) {
    std::map<std::pair<int32_t, int32_t>, int64_t> counts;
    for (const auto& [ids, count] : words) {
      for (size_t i = 0; i + 1 < ids.size(); ++i) counts[{ids[i], ids[i + 1]}] += count;
    }
    auto best = counts.end();
    for (auto one = counts.begin(); one != counts.end(); ++one) {
      if (best == counts.end() || one->second > best->second) best = one;
    }
    if (best == counts.end() || best->second < options.min_frequency) break;
    const auto [left, right] = best->first;
    merges.emplace_back(tokens[static_cast<size_t>(left)], tokens[static_cast<size_t>(right)]);
    const std::string joined = merges.back().first + merges.back().second;
    const auto known =
        std::find(tokens.begin() + static_cast<ptrdiff_t>(options.special_tokens.size()), tokens.end(), joined);
    const auto id = static_cast<int32_t>(known - tokens.begin());
    if (known == tokens.end()) tokens.push_back(joined);
    for (auto& [ids, count] : words) {
      std::vector<int32_t> next;
      for (size_t i = 0; i < ids.size(); ++i) {
        const bool pair = ids[i] == left && i + 1 < ids.size() && ids[i + 1] == right;
        next.push_back(pair ? id : ids[i]);
        i += pair ? 1 : 0;
      }
      ids = next;
    }
  }
  return merges;
}

TEST(BpeTrainer, IsThePlainWay) {
  for (const char* pattern : {"gpt2", "llama3", "qwen2", "o200k"}) {
    BpeTrainerOptions options;
    options.vocabulary_size = 420;
    options.pattern = pattern;
    const std::string text = SomeText(3, 20) + std::string(50, 'a') + std::string(31, ' ') + "abababab";
    const std::string_view texts[] = {text};
    ThreadPool pool(1);
    const TrainedBpe trained = TrainBpe(texts, options, pool);
    std::vector<std::pair<std::string, std::string>> merges;
    for (const auto& [left, right] : trained.merges) {
      merges.emplace_back(trained.tokens[static_cast<size_t>(left)], trained.tokens[static_cast<size_t>(right)]);
    }
    EXPECT_EQ(merges, TrainSlowly(text, options)) << pattern;
    EXPECT_EQ(trained.tokens.size(), 420u);
    // What it promises about this text is what the tokenizer gives.
    const auto tokenizer = ParseTokenizerJson(TokenizerJson(trained), "x");
    EXPECT_EQ(static_cast<int64_t>(tokenizer->Encode(text).size()), trained.ids);
    EXPECT_EQ(trained.bytes, static_cast<int64_t>(text.size()));
  }
}

TEST(BpeTrainer, ThreadsAndTheOrderOfTextsDoNotMatter) {
  const std::string first = SomeText(4, 9000), second = SomeText(5, 100);
  ASSERT_GT(first.size(), size_t{2} << 20);  // several chunks
  BpeTrainerOptions options;
  options.vocabulary_size = 600;
  ThreadPool one(1), three(3);
  const std::string_view texts[] = {first, second}, turned[] = {second, first};
  const std::string expected = TokenizerJson(TrainBpe(texts, options, one));
  EXPECT_EQ(TokenizerJson(TrainBpe(texts, options, three)), expected);
  EXPECT_EQ(TokenizerJson(TrainBpe(turned, options, three)), expected);
}

TEST(BpeTrainer, WritesWhatTheLoaderReads) {
  const auto tokenizer = Trained("llama3");
  EXPECT_EQ(tokenizer->vocabulary_size(), 340);
  EXPECT_EQ(tokenizer->Find("<|im_end|>"), 2);
  EXPECT_TRUE(tokenizer->IsSpecial(0));
  EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(kTrainingText)), kTrainingText);
}

TEST(BpeTrainer, StopsWhenPairsAreRare) {
  BpeTrainerOptions options;
  options.vocabulary_size = 100000;
  ThreadPool pool(1);
  const std::string_view texts[] = {"ab ab ab xy"};
  options.pattern = "gpt2";
  options.min_frequency = 2;
  const TrainedBpe trained = TrainBpe(texts, options, pool);
  ASSERT_EQ(trained.merges.size(), 2u);  // ab, and a space before it
  EXPECT_EQ(trained.tokens.back(), " ab");
  options.min_frequency = 4;
  EXPECT_TRUE(TrainBpe(texts, options, pool).merges.empty());
}

TEST(BpeTrainer, NeverMergesIntoASpecialToken) {
  BpeTrainerOptions options;
  options.vocabulary_size = 400;
  options.special_tokens = {"the"};
  ThreadPool pool(1);
  const std::string_view texts[] = {"the the the the the", "the\nthe\nthe"};
  const auto tokenizer = ParseTokenizerJson(TokenizerJson(TrainBpe(texts, options, pool)), "x");
  EXPECT_EQ(tokenizer->Decode(tokenizer->Encode("the the")), "the the");
  EXPECT_THAT(tokenizer->Encode("the"), testing::Not(testing::Contains(0)));
}

std::string ErrorOf(const BpeTrainerOptions& options, std::string_view text = "text") {
  ThreadPool pool(1);
  return ErrorText(ErrorCode::kUsage, [&] { TrainBpe(std::span(&text, 1), options, pool); });
}

TEST(BpeTrainer, RefusesWhatMakesNoSense) {
  BpeTrainerOptions options;
  options.vocabulary_size = 256;
  EXPECT_THAT(ErrorOf(options), HasSubstr("expected 257 (256 bytes and 1 special tokens) to"));
  options.vocabulary_size = 300;
  EXPECT_EQ(ErrorOf(options), "no error");
  EXPECT_THAT(ErrorOf(options, ""), HasSubstr("the training text is empty"));
  options.pattern = "gpt5";
  EXPECT_THAT(ErrorOf(options), HasSubstr("known: gpt2 llama3 qwen2 o200k"));
  options.pattern = "gpt2";
  options.special_tokens = {"<a>", "<a>"};
  EXPECT_THAT(ErrorOf(options), HasSubstr("'<a>' comes twice"));
  options.special_tokens = {"x"};
  EXPECT_THAT(ErrorOf(options), HasSubstr("single character"));
  options.special_tokens = {"\xFF\xFE"};
  EXPECT_THAT(ErrorOf(options), HasSubstr("not UTF-8"));
}

TEST(BpeTrainer, TheConfigurationNamesRolesAndTemplate) {
  TrainedBpe trained;
  trained.options.special_tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  EXPECT_THAT(TokenizerConfigJson(trained, true), HasSubstr(R"("eos_token": "<|im_end|>")"));
  EXPECT_THAT(TokenizerConfigJson(trained, true), HasSubstr("chat_template"));
  EXPECT_THAT(TokenizerConfigJson(trained, false), HasSubstr(R"("eos_token": "<|endoftext|>")"));
}

}  // namespace
}  // namespace octavo::text
