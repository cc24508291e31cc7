// The parts below the language: marked text, characters, numbers, JSON, search.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "octavo/base/error.h"
#include "octavo/text/template_compare.h"
#include "octavo/text/template_json.h"
#include "octavo/text/template_lexer.h"
#include "octavo/text/template_number.h"
#include "octavo/text/template_repr.h"
#include "octavo/text/template_search.h"
#include "octavo/text/template_text.h"
#include "octavo/text/template_unicode.h"

namespace octavo::text::jinja {
namespace {

using Runs = std::vector<Text::Run>;

TEST(Text, KeepsWhoWroteEachByte) {
  Text text("ab");
  text.Append("cd", kFromUser);
  text.Append("", kGenerated);
  text.Append("ef", kFromUser);
  text.Append("g", kFromTemplate);
  EXPECT_EQ(text.bytes(), "abcdefg");
  EXPECT_EQ(text.Runs(), (Runs{{0, 2, 0}, {2, 6, kFromUser}, {6, 7, 0}}));
  EXPECT_EQ(text.Slice(1, 3).Runs(), (Runs{{0, 1, 0}, {1, 2, kFromUser}}));
  EXPECT_EQ(text.Slice(3, 5).Runs(), (Runs{{0, 2, kFromUser}}));
  EXPECT_EQ(text.Slice(4, 4).Runs(), Runs{});
  EXPECT_EQ(text.MarksAt(1), kFromTemplate);
  EXPECT_EQ(text.MarksAt(2), kFromUser);
  EXPECT_EQ(text.MarksAt(6), kFromTemplate);
  text.AddMarks(kGenerated);
  EXPECT_EQ(text.Runs(), (Runs{{0, 2, kGenerated}, {2, 6, kFromUser | kGenerated}, {6, 7, kGenerated}}));
  text.Append(text);
  EXPECT_EQ(text.bytes(), "abcdefgabcdefg");
  EXPECT_EQ(text.Runs().size(), 5u);
  EXPECT_EQ(Text().Runs(), Runs{});
  EXPECT_EQ(Text("", kFromUser).AllMarks(), kFromTemplate);
}

TEST(Characters, WalkBothWays) {
  const std::string text = "aé日😀";
  EXPECT_EQ(CountChars(text), 4u);
  EXPECT_EQ(ByteOffset(text, 2), 3u);
  EXPECT_EQ(ByteOffset(text, 9), text.size());
  size_t at = 0;
  std::vector<char32_t> forward, backward;
  while (at < text.size()) forward.push_back(NextChar(text, &at));
  EXPECT_EQ(forward, (std::vector<char32_t>{'a', 0xE9, 0x65E5, 0x1F600}));
  while (at > 0) backward.push_back(PreviousChar(text, &at));
  EXPECT_EQ(backward, (std::vector<char32_t>{0x1F600, 0x65E5, 0xE9, 'a'}));
  EXPECT_TRUE(IsValidUtf8(text));
  EXPECT_FALSE(IsValidUtf8("\xC3"));
  EXPECT_FALSE(IsValidUtf8("\xED\xA0\x80"));  // a surrogate
  EXPECT_FALSE(IsValidUtf8("\xC0\x80"));      // overlong
}

TEST(Characters, MapCaseInFull) {
  const auto upper = [](char32_t c) {
    std::string out;
    AppendUpper(c, &out);
    return out;
  };
  const auto lower = [](const std::string& text) {
    std::string out;
    for (size_t at = 0; at < text.size();) {
      const size_t begin = at;
      AppendLower(NextChar(text, &at), text, begin, &out);
    }
    return out;
  };
  EXPECT_EQ(upper(0xDF), "SS");
  EXPECT_EQ(upper(0xFB03), "FFI");
  EXPECT_EQ(upper(0xE9), "É");
  EXPECT_EQ(lower("ΟΔΟΣ ΣΑΣ"), "οδος σας");
  EXPECT_EQ(lower("İ"), "i̇");
  EXPECT_TRUE(IsSpace(0xA0));
  EXPECT_TRUE(IsSpace(0x1C));
  EXPECT_FALSE(IsSpace(0x200B));
}

TEST(Numbers, PrintAsPythonPrints) {
  EXPECT_EQ(FloatRepr(1.0), "1.0");
  EXPECT_EQ(FloatRepr(-0.0), "-0.0");
  EXPECT_EQ(FloatRepr(0.1), "0.1");
  EXPECT_EQ(FloatRepr(1e-5), "1e-05");
  EXPECT_EQ(FloatRepr(0.0001), "0.0001");
  EXPECT_EQ(FloatRepr(1e16), "1e+16");
  EXPECT_EQ(FloatRepr(123456789012345.0), "123456789012345.0");
  EXPECT_EQ(FloatRepr(1.7976931348623157e308), "1.7976931348623157e+308");
  EXPECT_EQ(FloatRepr(5e-324), "5e-324");
  EXPECT_EQ(FloatRepr(-std::numeric_limits<double>::infinity()), "-inf");
  EXPECT_EQ(FormatFixed(2.675, 2), "2.67");
  EXPECT_EQ(FormatGeneral(1234567.0, 6), "1.23457e+06");
  EXPECT_EQ(FormatGeneral(0.0001, 3), "0.0001");
}

TEST(Numbers, ReadAsPythonReads) {
  int64_t whole = 0;
  EXPECT_EQ(ParseInt(" -1_000 ", 10, &whole), IntParse::kOk);
  EXPECT_EQ(whole, -1000);
  EXPECT_EQ(ParseInt("-9223372036854775808", 10, &whole), IntParse::kOk);
  EXPECT_EQ(whole, INT64_MIN);
  EXPECT_EQ(ParseInt("9223372036854775808", 10, &whole), IntParse::kTooLarge);
  EXPECT_EQ(ParseInt("0x1F", 16, &whole), IntParse::kOk);
  EXPECT_EQ(whole, 31);
  for (const char* bad : {"", "-", "1__0", "_1", "1_", "0x", "1.0", "007x"})
    EXPECT_EQ(ParseInt(bad, 10, &whole), IntParse::kInvalid) << bad;
  EXPECT_EQ(ParseInt("010", 0, &whole), IntParse::kInvalid);
  double real = 0;
  EXPECT_TRUE(ParseFloat(" 1_0.5e3 ", &real));
  EXPECT_EQ(real, 10500.0);
  EXPECT_TRUE(ParseFloat("-inf", &real));
  EXPECT_EQ(real, -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(ParseFloat("1e999", &real));
  EXPECT_TRUE(std::isinf(real));
  EXPECT_TRUE(ParseFloat(".5", &real));
  for (const char* bad : {"", "e5", "1_.5", "0x10", "1.5.2", "infx", "+-1"})
    EXPECT_FALSE(ParseFloat(bad, &real)) << bad;
}

TEST(Json, KeepsOrderAndLongIntegers) {
  const Value value =
      ParseJson(R"({"z": 1, "a": [12345678901234567890123, 18446744073709551615, -5, 1.0, 1e2], "m": null})");
  Text json;
  EXPECT_FALSE(ToJson(value, {}, &json).has_value());
  EXPECT_EQ(json.bytes(),
            R"({"z": 1, "a": [12345678901234567890123, 18446744073709551615, -5, 1.0, 100.0], "m": null})");
  EXPECT_EQ(json.AllMarks(), kFromUser);
  EXPECT_EQ(Repr(ParseJson("[true, null, \"x\"]", kFromTemplate)).bytes(), "[True, None, 'x']");
  EXPECT_EQ(Repr(FromJson(nlohmann::ordered_json::parse(R"({"b": 1, "a": [2.5]})"))).bytes(), "{'b': 1, 'a': [2.5]}");
}

TEST(Json, RefusesWhatIsHostile) {
  EXPECT_THROW(ParseJson("{\"a\": 1, \"a\": 2}"), Error);
  EXPECT_THROW(ParseJson(std::string(100000, '[')), Error);
  EXPECT_THROW(ParseJson(std::string(65, '[') + std::string(65, ']')), Error);
  EXPECT_NO_THROW(ParseJson(std::string(64, '[') + std::string(64, ']')));
  EXPECT_THROW(ParseJson("\"\xC3\""), Error);
  EXPECT_THROW(ParseJson("\"\\ud800\""), Error);
  EXPECT_THROW(ParseJson("{"), Error);
  EXPECT_THROW(ParseJson(""), Error);
  EXPECT_THROW(ParseJson("1 2"), Error);
  JsonLimits small;
  small.bytes = 3;
  EXPECT_THROW(ParseJson("[1,2]", kFromUser, small), Error);
  JsonLimits few;
  few.values = 5;
  few.containers = 2;
  EXPECT_NO_THROW(ParseJson("[1,2,3,4]", kFromUser, few));
  EXPECT_THROW(ParseJson("[1,2,3,4,5]", kFromUser, few), Error);
  EXPECT_THROW(ParseJson(R"({"a":1,"b":2,"c":3})", kFromUser, few), Error);
  EXPECT_NO_THROW(ParseJson("[[]]", kFromUser, few));
  EXPECT_THROW(ParseJson("[[],[]]", kFromUser, few), Error);
  nlohmann::ordered_json bad;
  bad["k"] = "\xFF";
  EXPECT_THROW(FromJson(bad), Error);
}

TEST(Values, HaveOneKeyForEqualNumbers) {
  DictObject dict;
  dict.Set(Value::Int(1), Value::String("int"));
  dict.Set(Value::Float(1.0), Value::String("float"));
  dict.Set(Value::Bool(true), Value::String("bool"));
  EXPECT_EQ(dict.size(), 1u);
  EXPECT_EQ(dict.Find(Value::Int(1))->str(), "bool");
  for (int64_t i = 0; i < 1000; ++i) dict.Set(Value::Int(i * 7919 % 1000), Value::Int(i));
  EXPECT_EQ(dict.size(), 1000u);
  for (int64_t i = 0; i < 1000; ++i) EXPECT_EQ(dict.Find(Value::Int(i * 7919 % 1000))->integer(), i);
  EXPECT_EQ(dict.Find("1"), nullptr);
}

TEST(Values, BoundTheirDepth) {
  Value value = Value::List({});
  int depth = 1;
  EXPECT_THROW(for (;; ++depth) value = Value::List({value}), Error);
  EXPECT_EQ(depth, kMaxValueDepth);
  // Shared twice at every level: 2^199 values, counted without walking.
  Value wide = Value::Tuple({});
  for (int i = 0; i < 100; ++i) wide = Value::Tuple({wide, wide});
  EXPECT_EQ(wide.weight(), uint64_t{1} << 40);
}

TEST(Search, IsLinearOnEqualCharacters) {
  const std::string text(1 << 20, 'a');
  const std::string part = std::string(1 << 19, 'a') + "b";
  EXPECT_EQ(FindPart(text, part), std::string::npos);
  EXPECT_EQ(FindLastPart(text, part), std::string::npos);
  const std::string front = "b" + std::string(1 << 19, 'a');
  EXPECT_EQ(FindLastPart(text, front), std::string::npos);
  EXPECT_EQ(FindLastPart(front + text, front), 0u);
  EXPECT_EQ(FindLastPart(text, std::string(100, 'a')), text.size() - 100);
  EXPECT_EQ(FindPart("abcabc", "bc", 2), 4u);
  EXPECT_EQ(FindPart("abc", "", 3), 3u);
  EXPECT_EQ(FindPart("abc", "c", 4), std::string::npos);
}

TEST(Lexer, CutsTagsAndCountsLines) {
  const std::vector<TokenInfo> tokens = Tokenize("a\n{{- x['k'] -}}\n  b\n  {%- if 1 %}\nc");
  std::vector<std::string> texts;
  for (const TokenInfo& token : tokens) texts.push_back(token.text);
  EXPECT_EQ(texts, (std::vector<std::string>{"a", "", "x", "[", "k", "]", "", "b", "", "if", "", "", "c", ""}));
  EXPECT_EQ(tokens[2].line, 2);
  EXPECT_EQ(tokens[9].line, 4);
  EXPECT_EQ(tokens[12].line, 5);
  EXPECT_EQ(NormalizeSource("a\r\nb\rc\n\n"), "a\nb\nc\n");
}

}  // namespace
}  // namespace octavo::text::jinja
