#include "octavo/server/output_parser.h"

#include <gtest/gtest.h>

namespace octavo::server {
namespace {

// "content|reasoning|name(arguments)…" of a text that arrives in pieces of `step` bytes.
std::string Parsed(const OutputForm& form, std::string_view text, size_t step) {
  OutputParser parser(form);
  OutputDelta all;
  const auto add = [&](const OutputDelta& delta) {
    all.content += delta.content;
    all.reasoning += delta.reasoning;
    all.calls.insert(all.calls.end(), delta.calls.begin(), delta.calls.end());
  };
  for (size_t at = 0; at < text.size(); at += step) add(parser.Push(text.substr(at, step), {}));
  add(parser.Finish());
  std::string result = all.content + "|" + all.reasoning + "|";
  for (const ToolCall& call : all.calls) result += call.name + "(" + call.arguments + ")";
  return result;
}

void ExpectParsed(const OutputForm& form, std::string_view text, std::string_view expected) {
  for (const size_t step : {size_t{1}, size_t{2}, size_t{7}, size_t{1000}}) {
    EXPECT_EQ(Parsed(form, text, step), expected) << text << " in pieces of " << step;
  }
}

TEST(OutputParser, PlainTextPasses) {
  ExpectParsed({}, " <think>a</think> <tool_call>{} ", " <think>a</think> <tool_call>{} ||");
}

TEST(OutputParser, Reasoning) {
  const OutputForm form{.reasoning = true};
  ExpectParsed(form, "<think>\nwhy <b>\n</think>\n\nanswer", "answer|why <b>|");
  ExpectParsed(form, "\n<think>a</think>b", "b|a|");
  ExpectParsed(form, "no <think>a</think>", "no <think>a</think>||");
  ExpectParsed(form, "<thin", "<thin||");
  ExpectParsed(form, "<think>never ends </thi", "|never ends </thi|");
  ExpectParsed({.reasoning = true, .reasoning_open = true}, "\nopen</think>\n\nb", "b|open|");
}

TEST(OutputParser, TaggedCalls) {
  const OutputForm form{.tools = ToolForm::kTagged};
  ExpectParsed(form, "Let me see.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>",
               "Let me see.||f({\"x\": 1})");
  ExpectParsed(form,
               "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n"
               "<tool_call>{\"name\":\"g\",\"arguments\":{\"a\":[1,\"</x>\"]}}</tool_call>",
               "||f({})g({\"a\": [1, \"</x>\"]})");
  ExpectParsed(form, "<tool_call>{\"name\":\"f\",\"arguments\":{}}", "||f({})");  // cut before the end tag
  ExpectParsed(form, "<tool_call>not json</tool_call> x", "<tool_call>not json</tool_call>x||");
  ExpectParsed(form, "a < b <tool", "a < b <tool||");
  ExpectParsed({.tools = ToolForm::kTagged, .reasoning = true},
               "<think>use f</think>\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>", "|use f|f({})");
}

TEST(OutputParser, PlainJsonCallsOnlyOfKnownTools) {
  const OutputForm form{.tools = ToolForm::kPlainJson, .names = {"f", "g"}};
  ExpectParsed(form, R"({"name": "f", "parameters": {"x": "a;b"}})", R"(||f({"x": "a;b"}))");
  ExpectParsed(form, R"({"name": "f", "parameters": {}}; {"name": "g", "parameters": {"y": ";"}})",
               R"(||f({})g({"y": ";"}))");
  ExpectParsed(form, R"({"name": "h", "parameters": {}})", R"({"name": "h", "parameters": {}}||)");
  ExpectParsed(form, R"({"answer": 42})", R"({"answer": 42}||)");
  ExpectParsed(form, R"(Sure: {"name": "f", "parameters": {}})", R"(Sure: {"name": "f", "parameters": {}}||)");
  ExpectParsed(form, "  ", "  ||");
}

TEST(OutputParser, MistralCalls) {
  const OutputForm form{.tools = ToolForm::kMistral, .tool_token = 9};
  ExpectParsed(form, R"([TOOL_CALLS][{"name": "f", "arguments": {"x": 1}}, {"name": "g", "arguments": {}}])",
               R"(||f({"x": 1})g({}))");
  ExpectParsed(form, R"([TOOL_CALLS]f[ARGS]{"x": 1})", R"(||f({"x": 1}))");
  ExpectParsed(form, "[TOOL_CALLS]broken", "[TOOL_CALLS]broken||");
  OutputParser parser(form);  // the marker as a special token, which leaves no text
  const int32_t marker[] = {9};
  EXPECT_TRUE(parser.Push("", marker).empty());
  EXPECT_TRUE(parser.Push(R"([{"name":"f","arguments":{}}])", {}).empty());
  ASSERT_EQ(parser.Finish().calls.size(), 1u);
}

TEST(OutputParser, AConstrainedAnswerIsOneCall) {
  ExpectParsed({.tools = ToolForm::kTagged, .only_call = true}, R"({"name":"f","arguments":{"x":1}})",
               R"(||f({"x": 1}))");
}

TEST(ToolCalls, FormsOfTemplates) {
  EXPECT_EQ(ToolFormOf("{{ messages }}"), ToolForm::kNone);
  EXPECT_EQ(ToolFormOf("{{ tools }}<tool_call>"), ToolForm::kTagged);
  EXPECT_EQ(ToolFormOf("{{ tools }}[TOOL_CALLS]"), ToolForm::kMistral);
  EXPECT_EQ(ToolFormOf("{{ tools }}"), ToolForm::kPlainJson);
}

TEST(ToolCalls, WhatIsNoCall) {
  for (const char* text : {"", "1", "{}", "[]", "[1]", R"({"name":1,"arguments":{}})", R"({"name":"f"})",
                           R"({"name":"f","arguments":[1]})", R"({"name":"f","arguments":"x"})",
                           R"({"name":"","arguments":{}})", R"({"name":"f","arguments":{}} {)", ";;;;"}) {
    EXPECT_FALSE(ParseCallJson(text).has_value()) << text;
  }
  ASSERT_TRUE(ParseCallJson(R"({"type":"function","function":{"name":"f","arguments":"{\"a\":1}"}})").has_value());
}

}  // namespace
}  // namespace octavo::server
