// Every part of tokenizer.json against Hugging Face's library: tests/golden/tokenizer_parts.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "octavo/text/stream_decoder.h"
#include "octavo/text/tokenizer_test_data.h"

namespace octavo::text {
namespace {

using Json = nlohmann::ordered_json;

Json ReadParts() { return Json::parse(ReadTestFile(GoldenPath("tokenizer_parts/parts.json"))); }

std::string Stream(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  StreamDecoder decoder(tokenizer, {.skip_special = false});
  std::string text;
  for (int32_t id : ids) {
    const std::string piece = decoder.Push(id);
    EXPECT_TRUE(IsValidUtf8(piece));
    text += piece;
  }
  return text + decoder.Finish();
}

TEST(TokenizerParts, AgreeWithTheReferenceLibrary) {
  int cases = 0, parts = 0;
  const Json index = ReadParts();
  for (const Json& part : index["parts"]) {
    SCOPED_TRACE(part["name"].get<std::string>());
    const auto tokenizer = ParseTokenizerJson(part["tokenizer"].dump(), "part");
    ++parts;
    for (const Json& one : part["cases"]) {
      ++cases;
      const std::string text = one["text"];
      SCOPED_TRACE(text);
      const EncodeOptions options{.add_special = false, .parse_special = true};
      const std::vector<int32_t> ids = one["ids"];
      EXPECT_EQ(tokenizer->Encode(text, options), ids);
      const Encoding detail = tokenizer->EncodeWithOffsets(text, options);
      EXPECT_EQ(detail.ids, ids);
      EXPECT_EQ(detail.tokens, one["tokens"].get<std::vector<std::string>>());
      ASSERT_EQ(detail.chars.size(), one["offsets"].size());
      for (size_t i = 0; i < detail.chars.size(); ++i) {
        EXPECT_EQ(detail.chars[i].begin, one["offsets"][i][0]);
        EXPECT_EQ(detail.chars[i].end, one["offsets"][i][1]);
      }
      const std::vector<int32_t> around = one.contains("ids_with_special") ? one["ids_with_special"] : one["ids"];
      EXPECT_EQ(tokenizer->Encode(text, {.add_special = true, .parse_special = true}), around);
    }
    for (const char* list : {"cases", "decode_cases"}) {
      for (const Json& one : part[list]) {
        const std::vector<int32_t> ids = one["ids"];
        const std::string decoded = one["decoded"];
        EXPECT_EQ(tokenizer->Decode(ids), decoded);
        EXPECT_EQ(tokenizer->Decode(ids, {.skip_special = true}),
                  one.contains("decoded_skip_special") ? one["decoded_skip_special"].get<std::string>() : decoded);
        // A stream judges broken characters as they come, the whole by the run; otherwise they are the same.
        const std::string streamed = Stream(*tokenizer, ids);
        if (decoded.find("\xEF\xBF\xBD") == std::string::npos) {
          EXPECT_EQ(streamed, decoded);
        }
      }
    }
  }
  EXPECT_EQ(parts, 54);
  EXPECT_EQ(cases, 270);
}

// The selection names every kind that the loaders know, so that none goes untested.
TEST(TokenizerParts, CoverEveryKind) {
  std::set<std::string> types;
  const std::function<void(const Json&)> collect = [&](const Json& json) {
    if (json.is_object() && json.contains("type") && json["type"].is_string()) types.insert(json["type"]);
    if (!json.is_structured()) return;
    for (const Json& inner : json) collect(inner);
  };
  const Json index = ReadParts();
  for (const Json& part : index["parts"]) {
    for (const char* key : {"normalizer", "pre_tokenizer", "post_processor", "decoder", "model"}) {
      collect(part["tokenizer"][key]);
    }
  }
  for (const char* type : {"BPE",
                           "Unigram",
                           "WordPiece",
                           "WordLevel",
                           "NFC",
                           "NFD",
                           "NFKC",
                           "NFKD",
                           "Lowercase",
                           "Strip",
                           "StripAccents",
                           "Nmt",
                           "BertNormalizer",
                           "Replace",
                           "Prepend",
                           "ByteLevel",
                           "Split",
                           "Metaspace",
                           "Whitespace",
                           "WhitespaceSplit",
                           "BertPreTokenizer",
                           "Punctuation",
                           "Digits",
                           "CharDelimiterSplit",
                           "FixedLength",
                           "TemplateProcessing",
                           "BertProcessing",
                           "RobertaProcessing",
                           "ByteFallback",
                           "Fuse",
                           "BPEDecoder",
                           "CTC",
                           "Sequence"}) {
    EXPECT_TRUE(types.contains(type)) << type;
  }
}

}  // namespace
}  // namespace octavo::text
