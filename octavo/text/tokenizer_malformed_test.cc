// Broken and hostile files: an Error that says what is wrong, never a crash or a hang.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "octavo/base/error.h"
#include "octavo/text/decoder_stages.h"
#include "octavo/text/pretokenizer_scan.h"
#include "octavo/text/tokenizer_test_data.h"

namespace octavo::text {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

// The error of loading a tokenizer.json; a text given is encoded too.
std::string ErrorOf(const std::string& json, const std::string& text = "") {
  try {
    const auto tokenizer = ParseTokenizerJson(json, "t.json");
    tokenizer->EncodeWithOffsets(text, {.add_special = true, .parse_special = true});
    tokenizer->Encode(text);
  } catch (const Error& error) {
    EXPECT_TRUE(error.code() == ErrorCode::kFile || error.code() == ErrorCode::kUsage) << error.what();
    return error.what();
  }
  return "no error";
}

Json Base() {
  return Json::parse(R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})");
}

std::string ErrorWith(const std::function<void(Json&)>& change, const std::string& text = "ab") {
  Json file = Base();
  change(file);
  return ErrorOf(file.dump(), text);
}

TEST(TokenizerMalformed, JsonWithinLimits) {
  EXPECT_EQ(ErrorOf(Base().dump(), "ab"), "no error");
  EXPECT_THAT(ErrorOf(""), HasSubstr("t.json: not valid JSON"));
  EXPECT_THAT(ErrorOf("[]"), HasSubstr("expected an object"));
  EXPECT_THAT(ErrorOf("{\"model\": \"\xFF\"}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(ErrorOf(std::string(1000000, '[')), HasSubstr("nested deeper than 128"));
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "{\"a\":";
  EXPECT_THAT(ErrorOf(deep), HasSubstr("nested deeper than 128"));
  EXPECT_THAT(ErrorOf(R"({"model": 1, "model": 2})"), HasSubstr("the key 'model' occurs twice"));
  EXPECT_THAT(ErrorOf("{}"), HasSubstr("'model' is missing"));
  EXPECT_THAT(ErrorOf(R"({"version": "9.0", "model": {}})"), HasSubstr("version '9.0' is not known"));
}

TEST(TokenizerMalformed, Models) {
  const auto model = [](const std::string& json, const std::string& text = "ab") {
    return ErrorOf("{\"model\": " + json + "}", text);
  };
  EXPECT_THAT(ErrorWith([](Json& f) { f["model"]["merges"] = {"a c"}; }),
              HasSubstr("merges[0]: token 'c' is not in the"));
  EXPECT_THAT(ErrorWith([](Json& f) { f["model"]["merges"] = {"b a"}; }), HasSubstr("token 'ba' is not in"));
  EXPECT_THAT(ErrorWith([](Json& f) { f["model"]["merges"] = {"ab"}; }), HasSubstr("expected two tokens"));
  EXPECT_THAT(ErrorWith([](Json& f) { f["model"]["merges"] = {{"a", "b", "c"}}; }), HasSubstr("expected two tokens"));
  EXPECT_THAT(ErrorWith([](Json& f) { f["model"]["merges"] = 3; }), HasSubstr("expected an array"));
  for (const char* id : {"-1", "4194304", "1e99", "0.5", "\"0\"", "18446744073709551615", "null"}) {
    EXPECT_THAT(model(R"({"type":"BPE","merges":[],"vocab":{"a":)" + std::string(id) + "}}"), HasSubstr("expected"))
        << id;
  }
  EXPECT_THAT(ErrorWith([](Json& f) { f["model"]["vocab"]["b"] = 0; }), HasSubstr("have the same id 0"));
  EXPECT_THAT(ErrorWith([](Json& f) { f["model"]["unk_token"] = "?"; }), HasSubstr("unk_token '?' is not in"));
  EXPECT_THAT(ErrorWith([](Json& f) { f["model"]["type"] = "GPT"; }),
              HasSubstr("known: BPE Unigram WordPiece WordLevel"));
  EXPECT_THAT(model(R"({"type":"Unigram","unk_id":5,"vocab":[["a",-1.0]]})"), HasSubstr("unk_id 5 is outside"));
  EXPECT_THAT(model(R"({"type":"Unigram","unk_id":0,"vocab":[["a"]]})"), HasSubstr("expected [piece, score]"));
  EXPECT_THAT(model(R"({"type":"Unigram","unk_id":0,"vocab":[["a",1e999]]})"), HasSubstr("t.json"));
  EXPECT_THAT(model(R"({"type":"Unigram","vocab":[["a",-1.0]]})"), HasSubstr("does not know, and it has no unk_id"));
  EXPECT_THAT(model(R"({"type":"WordPiece","vocab":{"a":0}})"), HasSubstr("unk_token '[UNK]' is not in"));
  EXPECT_THAT(model(R"({"type":"WordLevel","vocab":{"a":0}})"), HasSubstr("the word 'ab' is not in the vocabulary"));
  EXPECT_THAT(model(R"({"type":"WordPiece","vocab":{"[UNK]":0,")" + std::string(3000, 'x') + "\":1}}"),
              HasSubstr("t"));  // too long for a trie
  // Byte tokens that are none are plain tokens.
  for (const char* token : {"<0x-1>", "<0xZZ>", "<0x100>", "<0x4>", "<0x>", "<0x+1>", "<0x 1>"}) {
    EXPECT_EQ(FallbackByte(token), -1) << token;
    EXPECT_EQ(ErrorWith(
                  [&](Json& f) {
                    f["model"]["vocab"][token] = 3;
                    f["model"]["byte_fallback"] = true;
                  },
                  "xyz"),
              "no error");
  }
  EXPECT_EQ(FallbackByte("<0xFF>"), 255);
  EXPECT_EQ(model(R"({"type":"BPE","vocab":{},"merges":[]})", "abc"), "no error");
}

TEST(TokenizerMalformed, Parts) {
  const auto part = [](const char* key, const std::string& json, const std::string& text = "ab") {
    return ErrorWith([&](Json& f) { f[key] = Json::parse(json); }, text);
  };
  for (const char* key : {"normalizer", "pre_tokenizer", "post_processor", "decoder"}) {
    EXPECT_THAT(part(key, R"({"type": "Nonsense"})"), HasSubstr("'Nonsense' is not supported\nknown: ")) << key;
    EXPECT_THAT(part(key, R"({"type": 3})"), HasSubstr("expected a string")) << key;
    EXPECT_THAT(part(key, "[]"), HasSubstr("t.json")) << key;
  }
  EXPECT_THAT(part("normalizer", R"({"type":"Replace","pattern":{"Regex":"("},"content":""})"),
              HasSubstr("does not compile"));
  EXPECT_THAT(part("normalizer", R"({"type":"Precompiled","precompiled_charsmap":"!!"})"), HasSubstr("not base64"));
  EXPECT_THAT(part("normalizer", R"({"type":"Precompiled","precompiled_charsmap":"AAAA"})"), HasSubstr("too short"));
  EXPECT_THAT(part("normalizer", R"({"type":"Precompiled","precompiled_charsmap":"////fw=="})"),
              HasSubstr("bytes of trie"));
  EXPECT_THAT(part("normalizer", R"({"type":"Prepend","prepend":")" + std::string(2000, 'x') + "\"}"),
              HasSubstr("at most 1024 are accepted"));
  EXPECT_THAT(part("pre_tokenizer", R"({"type":"Split","pattern":{"Regex":"a"},"behavior":"Eaten"})"),
              HasSubstr("known: Removed"));
  EXPECT_THAT(part("pre_tokenizer", R"({"type":"Metaspace","replacement":"xy"})"), HasSubstr("expected one character"));
  EXPECT_THAT(part("post_processor",
                   R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x"}}],"special_tokens":{}})"),
              HasSubstr("'x' is missing"));
  EXPECT_THAT(part("post_processor", R"({"type":"BertProcessing","sep":["a",-1],"cls":["a",0]})"),
              HasSubstr("found -1"));
  EXPECT_THAT(part("added_tokens", R"([{"content": 3}])"), HasSubstr("expected a string"));
  EXPECT_THAT(part("decoder", R"({"type":"Strip","content":"ab","start":0,"stop":0})"),
              HasSubstr("expected one character"));
  EXPECT_EQ(part("added_tokens", R"([{"content": "", "id": 9}])"), "no error");
}

// A text that grows at every step ends in an error.
TEST(TokenizerMalformed, GrowingTexts) {
  const std::string step = R"({"type":"Replace","pattern":{"String":"a"},"content":")" + std::string(1000, 'a') + "\"}";
  const std::string json = "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[" + step + "," + step + "," + step +
                           "]}," + Base().dump().substr(1);
  EXPECT_THAT(ErrorOf(json, "aaaa"), HasSubstr("normalization makes"));
}

TEST(TokenizerMalformed, HostileRegexes) {
  const std::string run = std::string(5000, 'a') + "!";
  const auto with_pattern = [&](const std::string& pattern, const std::string& text) {
    return ErrorWith(
        [&](Json& f) {
          f["pre_tokenizer"] = {
              {"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
        },
        text);
  };
  for (const char* pattern : {"(a+)+$", "(a|aa)+$", "((a+)+)+$", "(?:a+){10}$"}) {
    EXPECT_THAT(with_pattern(pattern, run), HasSubstr("took too long")) << pattern;
  }
  // Honest patterns on long runs are fine.
  for (const char* pattern : {"a+", "[^b]*", " ?a+|!", "(?<=x)a", "\\s+(?!\\S)"}) {
    EXPECT_EQ(with_pattern(pattern, std::string(100000, 'a')), "no error") << pattern;
  }
  EXPECT_THAT(with_pattern("(((", "a"), HasSubstr("does not compile"));
  EXPECT_THAT(with_pattern(std::string(100000, 'a'), "a"), HasSubstr("at most"));
  EXPECT_THAT(with_pattern(std::string(5000, '(') + std::string(5000, ')'), "a"), HasSubstr("t"));
}

// Runs of a million equal characters with every pattern that there is a scanner for, and through models of each kind.
TEST(TokenizerMalformed, AMillionEqualCharacters) {
  for (const char* pattern : {"gpt2", "llama3", "qwen2", "o200k"}) {
    const auto tokenizer = Trained(pattern);
    for (const char* unit : {"a", " ", "\n", "1", "!", "'", "\xE6\x97\xA5", "\xCC\x81"}) {
      std::string text;
      while (text.size() < 1000000) text += unit;
      EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(text)), text) << pattern << " " << unit;
    }
  }
  for (const char* folder : {"bpe_bytefallback", "unigram_metaspace", "spm_bpe"}) {
    const auto tokenizer = LoadTokenizer(GoldenPath("tokenizers/") + folder);
    for (const char* unit : {"a", " ", "\n", "\xE6\x97\xA5"}) {
      std::string text;
      while (text.size() < 1000000) text += unit;
      EXPECT_GT(tokenizer->Encode(text).size(), 0u) << folder << " '" << unit << "'";
    }
  }
}

// Every cut and many changes of good files: an Error or a tokenizer that works.
TEST(TokenizerMalformed, DamagedFiles) {
  RandomText random(21);
  const auto use = [](const std::function<std::unique_ptr<Tokenizer>()>& load) {
    try {
      const auto tokenizer = load();
      const std::vector<int32_t> ids =
          tokenizer->Encode("Hello <s> world\xFF 日", {.add_special = true, .parse_special = true});
      tokenizer->Decode(ids, {.skip_unknown_ids = true});
    } catch (const Error&) {
    }
  };
  const Json parts = Json::parse(ReadTestFile(GoldenPath("tokenizer_parts/parts.json")))["parts"];
  for (const Json& part : parts) {
    const std::string good = part["tokenizer"].dump();
    for (int i = 0; i < 30; ++i) {
      std::string bad = good;
      if (i % 3 == 0) {
        bad.resize(random.Below(bad.size()));
      } else {
        for (size_t changes = 1 + random.Below(3); changes > 0; --changes) {
          static constexpr std::string_view kChars = "0-9{}[],\":a<x\\";
          bad[random.Below(bad.size())] = kChars[random.Below(kChars.size())];
        }
      }
      use([&] { return ParseTokenizerJson(bad, "bad"); });
    }
  }
}

}  // namespace
}  // namespace octavo::text
