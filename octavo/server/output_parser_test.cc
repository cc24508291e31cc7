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
    JoinCalls(all.calls, std::vector<ToolCall>(delta.calls));
  };
  for (size_t at = 0; at < text.size(); at += step) add(parser.Push(text.substr(at, step), {}));
  add(parser.Finish());
  std::string result = all.content + "|" + all.reasoning + "|";
  for (const ToolCall& call : all.calls) result += call.name + "(" + call.arguments + ")";
  return result;
}

void ExpectParsed(const OutputForm& form, std::string_view text, std::string_view expected) {
  for (const size_t step : {size_t{1}, size_t{2}, size_t{3}, size_t{7}, size_t{1000}}) {
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
               "||f({})g({\"a\":[1,\"</x>\"]})");
  ExpectParsed(form, "<tool_call>{\"name\":\"f\",\"arguments\":{}}", "||f({})");  // cut before the end tag
  ExpectParsed(form, "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool", "||f({})");
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
  EXPECT_EQ(parser.Push(R"([{"name":"f","arguments":{}}])", {}).calls[0].name, "f");
  EXPECT_TRUE(parser.Finish().empty());
  OutputParser several(form);  // a marker before each call
  std::vector<ToolCall> calls;
  for (const char* text : {"f{\"x\":", "1}", "g{}"}) {
    const bool begins = text[0] != '1';
    JoinCalls(calls, several.Push("", begins ? std::span<const int32_t>(marker) : std::span<const int32_t>()).calls);
    OutputDelta delta = several.Push(text, {});
    EXPECT_EQ(delta.content, "");
    JoinCalls(calls, std::move(delta.calls));
  }
  EXPECT_TRUE(several.Finish().empty());
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0].name + calls[0].arguments + calls[1].name + calls[1].arguments, "f{\"x\":1}g{}");
}

TEST(OutputParser, AConstrainedAnswerIsOneCall) {
  ExpectParsed({.tools = ToolForm::kTagged, .only_call = true}, R"({"name":"f","arguments":{"x":1}})",
               R"(||f({"x":1}))");
  // A schema may allow other values than objects.
  const OutputForm form{.tools = ToolForm::kMistral, .only_call = true};
  ExpectParsed(form, R"({"name":"f","arguments":"a}\"{"})", R"(||f("a}\"{"))");
  ExpectParsed(form, R"({"name":"f","arguments":-1.5e3})", R"(||f(-1.5e3))");
  ExpectParsed(form, R"({"name":"f","arguments": [true, {"a":"]"}] })", R"(||f([true, {"a":"]"}]))");
  ExpectParsed(form, R"({"name":"f","argu)", R"({"name":"f","argu||)");  // cut before it was a call
}

// Concatenated, what has come after each piece of the text.
std::string Pieces(const OutputForm& form, std::initializer_list<std::string_view> texts) {
  OutputParser parser(form);
  std::string all;
  for (const std::string_view text : texts) {
    for (const ToolCall& piece : parser.Push(text, {}).calls) all += piece.name + "(" + piece.arguments + ")";
    all += "/";
  }
  for (const ToolCall& piece : parser.Finish().calls) all += piece.name + "(" + piece.arguments + ")";
  return all;
}

TEST(OutputParser, ArgumentsComeAsTheyAreWritten) {
  EXPECT_EQ(Pieces({.tools = ToolForm::kTagged}, {"<tool_call>{\"name\": \"f\", ", "\"arguments\": ", "{\"te",
                                                  "xt\": \"a}", "b\"}", "}</tool_call>"}),
            "//f()({\"te)/(xt\": \"a})/(b\"})//");
  EXPECT_EQ(Pieces({.tools = ToolForm::kMistral}, {"[TOOL_CALLS]f[AR", "GS]{", "\"x\":", "1}"}),
            "/f()({)/(\"x\":)/(1})/");
  EXPECT_EQ(Pieces({.tools = ToolForm::kPlainJson, .names = {"f"}},
                   {"{\"type\":\"function\",\"name\":\"f\",\"parameters\":{", "}", "}"}),
            "f()({)/(})//");
}

TEST(OutputParser, ACallThatIsCutIsACallWithoutItsEnd) {
  ExpectParsed({.tools = ToolForm::kTagged}, "<tool_call>{\"name\":\"f\",\"arguments\":{\"x\": \"ab",
               "||f({\"x\": \"ab)");
  ExpectParsed({.tools = ToolForm::kTagged},
               "<tool_call>{\"name\":\"f\",\"arguments\":", "<tool_call>{\"name\":\"f\",\"arguments\":||");
  ExpectParsed({.tools = ToolForm::kMistral}, R"([TOOL_CALLS][{"name":"f","arguments":{}},{"na)", R"(,{"na||f({}))");
}

TEST(OutputParser, CallsInOtherForms) {
  const OutputForm form{.tools = ToolForm::kTagged};
  const auto tagged = [](const std::string& inner) { return "<tool_call>" + inner + "</tool_call>"; };
  // More than name and arguments, arguments first, arguments as a text, a wrapped function, a name with an escape.
  ExpectParsed(form, tagged(R"({"id": "1", "name": "f", "arguments": {"a": 1}, "more": [{"}": 2}]})"),
               R"(||f({"a": 1}))");
  ExpectParsed(form, tagged(R"({"arguments": {"a":1}, "name": "f"})"), R"(||f({"a": 1}))");
  ExpectParsed(form, tagged(R"({"name": "f", "arguments": "{\"a\":1}"})"), R"(||f({"a":1}))");
  ExpectParsed(form, tagged(R"({"function": {"name": "f", "arguments": {"a":1}}})"), R"(||f({"a": 1}))");
  ExpectParsed(form, tagged(R"({"name": "\u0066", "arguments": {}})"), R"(||f({}))");
  // Several in one pair of tags, and what follows them.
  ExpectParsed(form, tagged("{\"name\":\"f\",\"arguments\":{}}\n{\"name\":\"g\",\"arguments\":{}}"), "||f({})g({})");
  ExpectParsed(form, tagged(R"({"name":"f","arguments":{}} or so)") + "x", "or sox||f({})");
  // Only what was asked for.
  ExpectParsed({.tools = ToolForm::kMistral, .one_call = true},
               R"([TOOL_CALLS][{"name":"f","arguments":{"a":1}},{"name":"g","arguments":{"b":2}}])", R"(||f({"a":1}))");
  ExpectParsed({.tools = ToolForm::kPlainJson, .names = {"f"}},
               R"({"name":"f","parameters":{}}; {"name":"h","parameters":{}})",
               R"(; {"name":"h","parameters":{}}||f({}))");
  ExpectParsed({.tools = ToolForm::kMistral}, R"([TOOL_CALLS]you can write {"a": 1})",
               R"([TOOL_CALLS]you can write {"a": 1}||)");
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
