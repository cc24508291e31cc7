#include "octavo/text/json_schema.h"

#include <gtest/gtest.h>

#include "octavo/base/error.h"
#include "octavo/text/json_schema_test_data.h"
#include "octavo/text/mask_cache.h"
#include "octavo/text/tokenizer_test_data.h"

namespace octavo::text {
namespace {

// The text is accepted byte by byte and may end there.
bool Accepts(const TokenConstraint& start, std::string_view text) {
  const auto constraint = start.Clone();
  for (char byte : text) {
    if (!constraint->Accept(4 + static_cast<uint8_t>(byte))) return false;
  }
  return constraint->Complete();
}

bool Accepts(std::string_view schema, std::string_view text) {
  return Accepts(*CompileJsonSchema(schema, TestVocabulary()), text);
}

std::string Refusal(std::string_view schema) {
  try {
    CompileJsonSchema(schema, TestVocabulary());
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    return error.message();
  }
  return "accepted";
}

TEST(JsonSchema, FiveHundredSchemasGiveOnlyValidTexts) {
  const auto vocabulary = TestVocabulary();
  RandomSchema random(11);
  size_t complete = 0;
  size_t all = 0;
  for (int i = 0; i < 500; ++i) {
    const Json schema = random.Next();
    const auto start = CompileJsonSchema(schema.dump(), vocabulary);
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const Sample sample = SampleText(*start, *vocabulary, seed * 1000 + static_cast<uint64_t>(i));
      ++all;
      if (!sample.complete) {
        // Not one dead end: it only ran out of tokens.
        ASSERT_EQ(sample.tokens, 400u) << schema.dump() << "\n" << sample.text;
        continue;
      }
      ++complete;
      const Json value = Json::parse(sample.text, nullptr, false);
      ASSERT_FALSE(value.is_discarded()) << schema.dump() << "\n" << sample.text;
      ASSERT_EQ(Validator(schema).Check(schema, value), "") << schema.dump() << "\n" << sample.text;
    }
  }
  EXPECT_EQ(all, 10'000u);
  EXPECT_GE(complete, 9'900u);
}

// The mask, put together from what is remembered of single places, is what reading each token would say.
TEST(JsonSchema, MaskIsWhatAcceptSays) {
  const auto vocabulary = TestVocabulary();
  RandomSchema random(5);
  size_t compared = 0;
  for (int i = 0; i < 40; ++i) {
    const Json schema = random.Next();
    const auto constraint = CompileJsonSchema(schema.dump(), vocabulary)->Clone();
    std::vector<uint32_t> mask(static_cast<size_t>(vocabulary->size()) / 32 + 3);
    for (int step = 0; step < 12; ++step) {
      constraint->Fill(mask);
      std::vector<int32_t> allowed;
      for (int32_t id = 0; id < static_cast<int32_t>(mask.size() * 32); ++id) {
        const bool bit = (mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0;
        ASSERT_EQ(bit, bit ? constraint->Clone()->Accept(id) : constraint->Accept(id))
            << schema.dump() << " token " << id;
        if (bit && id != kTestEnd) allowed.push_back(id);
        ++compared;
      }
      if (allowed.empty()) break;
      ASSERT_TRUE(constraint->Accept(allowed[random.Below(allowed.size())]));
    }
  }
  EXPECT_GT(compared, 100'000u);
}

TEST(JsonSchema, SpecialTokensNeverAndEndOnlyWhenComplete) {
  const auto vocabulary = TestVocabulary();
  const auto constraint = CompileJsonSchema(R"J({"type":"integer"})J", vocabulary)->Clone();
  std::vector<uint32_t> mask(16);
  const auto bit = [&](int32_t id) {
    constraint->Fill(mask);
    return (mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0;
  };
  EXPECT_FALSE(bit(kTestEnd));
  EXPECT_FALSE(constraint->Accept(kTestEnd));
  EXPECT_FALSE(constraint->Accept(0));
  EXPECT_FALSE(constraint->Accept(-1));
  EXPECT_FALSE(constraint->Accept(1'000'000));
  EXPECT_FALSE(constraint->Complete());
  ASSERT_TRUE(constraint->Accept(4 + '7'));
  EXPECT_TRUE(constraint->Complete());
  EXPECT_TRUE(bit(kTestEnd));
  EXPECT_FALSE(bit(0));
  EXPECT_TRUE(bit(4 + '1'));
  EXPECT_FALSE(bit(4 + ' '));
  ASSERT_TRUE(constraint->Accept(kTestEnd));
  constraint->Fill(mask);
  for (uint32_t word : mask) EXPECT_EQ(word, 0u);
}

TEST(JsonSchema, ObjectsInOrderWithOptionalAndFurtherMembers) {
  const std::string_view schema =
      R"J({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"null"},"c":{"type":"boolean"}},"required":["b"],"additionalProperties":{"const":1}})J";
  EXPECT_TRUE(Accepts(schema, R"J({"a":1,"b":null,"c":true})J"));
  EXPECT_TRUE(Accepts(schema, "{\n  \"b\": null\n}"));
  EXPECT_TRUE(Accepts(schema, R"J({"b": null, "x": 1, "aa":1})J"));
  EXPECT_FALSE(Accepts(schema, R"J({"a":1})J"));
  EXPECT_FALSE(Accepts(schema, R"J({"b":null,"a":1})J"));       // order
  EXPECT_FALSE(Accepts(schema, R"J({"b":null,"b":null})J"));    // twice
  EXPECT_FALSE(Accepts(schema, "{\"b\":null,\"\\u0062\":1}"));  // twice, in disguise
  EXPECT_FALSE(Accepts(schema, R"J({"b":null,})J"));
  EXPECT_FALSE(Accepts(schema, R"J({"b":null,"x":2})J"));
  EXPECT_FALSE(Accepts(schema, "{ \n \"b\":null}"));
}

TEST(JsonSchema, BoundsOfNumbersAreExact) {
  const std::string_view integers = R"J({"type":"integer","minimum":-12,"exclusiveMaximum":205})J";
  const auto integer = CompileJsonSchema(integers, TestVocabulary());
  for (int value = -300; value <= 1000; ++value) {
    EXPECT_EQ(Accepts(*integer, std::to_string(value)), value >= -12 && value < 205) << value;
  }
  EXPECT_FALSE(Accepts(*integer, "-0"));
  EXPECT_FALSE(Accepts(*integer, "01"));
  EXPECT_FALSE(Accepts(*integer, "1.0"));
  const auto exact = CompileJsonSchema(R"J({"type":"integer","minimum":9007199254740993})J", TestVocabulary());
  EXPECT_TRUE(Accepts(*exact, "9007199254740993"));
  EXPECT_FALSE(Accepts(*exact, "9007199254740992"));
  struct Case {
    double low, high;
    bool exclusive;
  };
  for (const Case& c : {Case{-1.5, 2.25, false}, Case{0, 1, true}, Case{0.1, 0.35, true}, Case{-20, -0.75, false}}) {
    const auto start = CompileJsonSchema(
        fmt::format(R"J({{"type":"number","{0}inimum":{1},"{2}aximum":{3}}})J", c.exclusive ? "exclusiveM" : "m", c.low,
                    c.exclusive ? "exclusiveM" : "m", c.high),
        TestVocabulary());
    for (int i = -2500; i <= 300; ++i) {
      const double value = i / 100.0;
      const std::string text = fmt::format("{}", value);
      const bool inside = c.exclusive ? value > c.low && value < c.high : value >= c.low && value <= c.high;
      EXPECT_EQ(Accepts(*start, text == "-0" ? "0" : text), inside) << text << " in " << c.low << " " << c.high;
      if (!inside || text.find('.') == std::string::npos) continue;
      EXPECT_TRUE(Accepts(*start, text + "00"));
    }
  }
}

TEST(JsonSchema, PatternsAreSearchedAndEscaped) {
  EXPECT_TRUE(Accepts(R"J({"pattern":"b+"})J", R"J("abbc")J"));
  EXPECT_FALSE(Accepts(R"J({"pattern":"b+"})J", R"J("ac")J"));
  EXPECT_TRUE(Accepts(R"J({"pattern":"^a|b$"})J", R"J("axx")J"));
  EXPECT_TRUE(Accepts(R"J({"pattern":"^a|b$"})J", R"J("xxb")J"));
  EXPECT_FALSE(Accepts(R"J({"pattern":"^a|b$"})J", R"J("xax")J"));
  EXPECT_TRUE(Accepts(R"J({"pattern":"^[\"\\n]$"})J", R"J("\n")J"));
  EXPECT_TRUE(Accepts(R"J({"pattern":"^[\"\\n]$"})J", R"J("\"")J"));
  EXPECT_TRUE(Accepts(R"J({"pattern":"^\\u{65e5}.$"})J", "\"日本\""));
  EXPECT_FALSE(Accepts(R"J({"pattern":"^\\u{65e5}.$"})J", "\"日\""));
  EXPECT_TRUE(Accepts(R"J({"pattern":"^a+$","minLength":3,"maxLength":4})J", R"J("aaa")J"));
  EXPECT_FALSE(Accepts(R"J({"pattern":"^a+$","minLength":3,"maxLength":4})J", R"J("aa")J"));
  EXPECT_FALSE(Accepts(R"J({"pattern":"^a+$","minLength":3,"maxLength":4})J", R"J("aaaaa")J"));
  EXPECT_TRUE(Accepts(R"J({"maxLength":2,"minLength":2})J", "\"\\ud83d\\ude80\\u00e9\""));  // two characters
  EXPECT_FALSE(Accepts(R"J({"maxLength":2})J", R"J("\ud83d")J"));
  EXPECT_FALSE(Accepts(R"J({"type":"string"})J", "\"\xC3\""));
  EXPECT_FALSE(Accepts(R"J({"type":"string"})J", "\"\n\""));
}

TEST(JsonSchema, ReferencesMayRecurse) {
  const std::string_view tree =
      R"J({"$ref":"#/$defs/T","$defs":{"T":{"type":"object","properties":{"v":{"type":"integer"},"kids":{"type":"array","items":{"$ref":"#/$defs/T"}}},"required":["v","kids"],"additionalProperties":false}}})J";
  EXPECT_TRUE(Accepts(tree, R"J({"v":1,"kids":[{"v":2,"kids":[]},{"v":3,"kids":[{"v":4,"kids":[]}]}]})J"));
  EXPECT_FALSE(Accepts(tree, R"J({"v":1,"kids":[{"v":2,"kids":[]}])J"));
  // Alternatives that differ only at the end of each level: what is below is shared, so depth does not multiply.
  const std::string_view late =
      R"J({"anyOf":[{"type":"array","prefixItems":[{"$ref":"#"},{"const":1}],"minItems":2,"maxItems":2},{"type":"array","prefixItems":[{"$ref":"#"},{"const":2}],"minItems":2,"maxItems":2},{"const":0}]})J";
  std::string deep = "0";
  for (int i = 0; i < 200; ++i) deep = "[" + deep + "," + std::to_string(1 + i % 2) + "]";
  EXPECT_TRUE(Accepts(late, deep));
  deep[deep.size() - 2] = '3';
  EXPECT_FALSE(Accepts(late, deep));
}

TEST(JsonSchema, DiscriminatedOneOf) {
  const std::string_view schema =
      R"J({"oneOf":[{"type":"object","properties":{"kind":{"const":"a"},"x":{"type":"integer"}},"required":["kind","x"]},{"type":"object","properties":{"kind":{"const":"b"},"y":{"type":"string"}},"required":["kind","y"]}]})J";
  EXPECT_TRUE(Accepts(schema, R"J({"kind":"a","x":1})J"));
  EXPECT_TRUE(Accepts(schema, R"J({"kind":"b","y":""})J"));
  EXPECT_FALSE(Accepts(schema, R"J({"kind":"a","y":""})J"));
  EXPECT_NE(Refusal(R"J({"oneOf":[{"type":"integer"},{"type":"number"}]})J"), "accepted");
  EXPECT_EQ(Refusal(R"J({"oneOf":[{"type":"integer"},{"type":"string"}]})J"), "accepted");
}

TEST(JsonSchema, AnyObject) {
  const auto any = CompileJsonObject(TestVocabulary());
  EXPECT_TRUE(Accepts(*any, R"J({"a":[1,2.5e3,{"b":null}],"c":"\u00e9"})J"));
  EXPECT_TRUE(Accepts(*any, "{}"));
  EXPECT_TRUE(Accepts(*any, " {}"));
  EXPECT_FALSE(Accepts(*any, "[]"));
  EXPECT_FALSE(Accepts(*any, R"J({"a":})J"));
  std::string deep = "0";
  for (int i = 0; i < 3000; ++i) deep = "{\"a\":" + deep + "}";  // the machine shrinks on the way
  EXPECT_TRUE(Accepts(*any, deep));
}

TEST(JsonSchema, RefusedWithThePlaceAndTheReason) {
  const std::pair<std::string, std::string_view> cases[] = {
      {R"J({"properties":{"a":{"pattern":"(?<=x)y"}}})J",
       "schema at /properties/a/pattern: look-behind is not supported"},
      {R"J({"pattern":"(?=x)"})J", "schema at /pattern: look-ahead is not supported"},
      {R"J({"pattern":"^+"})J", "schema at /pattern: an anchor cannot be repeated"},
      {R"J({"pattern":"(a)\\1"})J", "schema at /pattern: back references are not supported"},
      {R"J({"pattern":"a**"})J", "schema at /pattern: '*' after a repetition"},
      {R"J({"pattern":"(a"})J", "schema at /pattern: an unmatched '('"},
      {R"J({"pattern":"[b-a]"})J", "schema at /pattern: a range of characters in the wrong order"},
      {R"J({"pattern":"((a{1,1000}){1,1000}){1,1000}"})J", "schema at /pattern: "},
      {R"J({"pattern":"(((){100000}){100000}){100000}"})J", "schema at /pattern: "},
      {R"J({"pattern":"(a|b)*a(a|b){30}"})J", "schema at /pattern: it needs more than 10000 states"},
      {R"J({"items":{"type":"array","uniqueItems":true}})J",
       "schema at /items: the keyword 'uniqueItems' cannot be enforced"},
      {R"J({"not":{}})J", "schema: the keyword 'not' cannot be enforced"},
      {R"J({"type":"strin"})J", "schema: the type 'strin' is unknown"},
      {R"J({"type":"string","format":"color"})J", "schema at /format: the format 'color' cannot be enforced"},
      {R"J({"minLength":3,"maxLength":2})J", "schema: minLength 3 is above maxLength 2"},
      {R"J({"type":"integer","minimum":3,"maximum":2})J", "schema: no integer"},
      {R"J({"type":"integer","minimum":2.1,"maximum":2.9})J", "schema: no integer"},
      {R"J({"type":"integer","minimum":"x"})J", "schema at /minimum: expected a number"},
      {R"J({"type":"object","minProperties":2})J", "schema: minProperties 2: more than 1 cannot be enforced"},
      {R"J({"minItems":-1})J", "schema: minItems: expected an integer"},
      {R"J({"pattern":"^a$","minLength":2})J", "schema at /minLength: no string satisfies it"},
      {R"J({"$ref":"#/$defs/x"})J", "schema: $ref '#/$defs/x' leads nowhere"},
      {R"J({"$ref":"http://example.com/x"})J", "schema: $ref 'http://example.com/x' leads nowhere"},
      {R"J({"$ref":"#"})J", "schema: $ref leads back to itself"},
      {R"J({"anyOf":[{"$ref":"#"},{"type":"null"}]})J", "schema: an alternative leads back to itself"},
      {R"J({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})J",
       "schema: no finite text satisfies it"},
      {R"J({"additionalProperties":false,"required":["a"]})J", "schema: required names 'a'"},
      {R"J({"allOf":[{"type":"object"},{"type":"object"}]})J", "schema: allOf of more than one"},
      {R"J({"enum":["a"],"type":"integer"})J", "schema: no value of enum"},
      {R"J({"enum":[]})J", "schema: no value of enum"},
      {R"J([1])J", "schema: a schema is an object"},
      {R"J({"a)J", "schema: not valid JSON"},
      {"", "schema: not valid JSON"},
      {R"J({"type":"object","type":"array"})J", "schema: the key 'type' occurs twice"},
  };
  for (const auto& [schema, wanted] : cases) {
    EXPECT_EQ(Refusal(schema).substr(0, wanted.size()), wanted) << schema << "\n" << Refusal(schema);
  }
  std::string nested;
  for (int i = 0; i < 60'000; ++i) nested += "{\"items\":";
  EXPECT_NE(Refusal(nested), "accepted");
  EXPECT_NE(Refusal("{\"pattern\":\"" + std::string(60'000, '(') + "\"}"), "accepted");
  std::string chain = "{\"$ref\":\"#/$defs/0\",\"$defs\":{";
  for (int i = 0; i < 3000; ++i)
    chain += fmt::format("\"{}\":{{\"anyOf\":[{{\"$ref\":\"#/$defs/{}\"}},{{\"const\":{}}}]}},", i, i + 1, i);
  EXPECT_NE(Refusal(chain + "\"3000\":{\"type\":\"null\"}}}"), "accepted");  // too many alternatives, but no deep stack
}

TEST(JsonSchema, MasksStayWithinTheirBound) {
  const auto vocabulary = TestVocabulary(20'000);
  RandomSchema random(3);
  for (int i = 0; i < 30; ++i) {
    const auto start = CompileJsonSchema(random.Next().dump(), vocabulary);
    SampleText(*start, *vocabulary, 1);
    EXPECT_LE(vocabulary->cache().bytes(), 20'000u);
  }
  EXPECT_GT(vocabulary->cache().bytes(), 10'000u);
}

TEST(JsonSchema, CopiesGoOnAlone) {
  const auto vocabulary = TestVocabulary();
  const auto one =
      CompileJsonSchema(R"J({"type":"array","items":{"type":"integer"},"maxItems":2})J", vocabulary)->Clone();
  ASSERT_TRUE(one->Accept(4 + '['));
  const auto two = one->Clone();
  ASSERT_TRUE(one->Accept(4 + ']'));
  EXPECT_TRUE(one->Complete());
  EXPECT_FALSE(two->Complete());
  EXPECT_TRUE(two->Accept(4 + '1'));
}

// What each kind of tokenizer says its tokens add is what decoding gives.
TEST(TokenBytes, TextIsTheBytesOfTheTokens) {
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
  tokenizers.push_back(MakeByteTokenizer());
  tokenizers.push_back(Trained("gpt2"));
  const std::string metaspace =
      R"J({"model":{"type":"BPE","byte_fallback":true,"unk_token":"<unk>","vocab":{"<unk>":0,"<0xE6>":1,"<0x97>":2,"<0xA5>":3,"▁":4,"a":5,"▁a":6,"b":7},"merges":["▁ a"]},"added_tokens":[{"id":0,"content":"<unk>","special":true,"single_word":false,"lstrip":false,"rstrip":false,"normalized":false}],"decoder":{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]}})J";
  tokenizers.push_back(ParseTokenizerJson(metaspace, "metaspace"));
  EXPECT_EQ(tokenizers[2]->TokenBytes(1), "\xE6");
  EXPECT_EQ(tokenizers[2]->TokenBytes(6), " a");
  EXPECT_EQ(tokenizers[2]->TokenBytes(0), std::nullopt);
  std::mt19937 engine(1);
  for (const auto& tokenizer : tokenizers) {
    std::vector<int32_t> known;
    for (int32_t id = 0; id < tokenizer->vocabulary_size(); ++id) {
      EXPECT_FALSE(tokenizer->IsSpecial(id) && tokenizer->TokenBytes(id));
      if (tokenizer->TokenBytes(id)) known.push_back(id);
    }
    ASSERT_FALSE(known.empty());
    const std::string first(*tokenizer->TokenBytes(*tokenizer->Find("a")));
    for (int i = 0; i < 300; ++i) {
      std::vector<int32_t> ids = {*tokenizer->Find("a")};
      std::string bytes = first;
      for (int j = 0; j < 8; ++j) {
        ids.push_back(known[engine() % known.size()]);
        bytes += *tokenizer->TokenBytes(ids.back());
      }
      if (!IsValidUtf8(bytes)) continue;
      EXPECT_EQ(tokenizer->Decode(ids), bytes);
    }
  }
  const std::string words =
      R"J({"model":{"type":"WordPiece","unk_token":"[UNK]","continuing_subword_prefix":"##","max_input_chars_per_word":100,"vocab":{"[UNK]":0,"a":1,"##b":2}},"decoder":{"type":"WordPiece","prefix":"##","cleanup":true}})J";
  EXPECT_THROW(VocabularyBytes::Make(*ParseTokenizerJson(words, "words")), Error);
}

}  // namespace
}  // namespace octavo::text
