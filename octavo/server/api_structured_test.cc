// Structured output, tools and reasoning through the routes. The service without a model takes the lowest token that a
// constraint allows, so what comes back is forced by the schema alone.
#include <gtest/gtest.h>

#include "octavo/server/server_test_support.h"

namespace octavo::server {
namespace {

using nlohmann::json;

constexpr const char* kAsk = R"("messages":[{"role":"user","content":"x"}],"max_tokens":400)";
constexpr const char* kTools =
    R"("tools":[{"type":"function","function":{"name":"add","parameters":{"type":"object","properties":{"a":{"type":"integer"},"b":{"$ref":"#/$defs/B"}},"required":["a","b"],"additionalProperties":false,"$defs":{"B":{"enum":["x","y"]}}}}},{"type":"function","function":{"name":"now"}}])";

std::string Chat(const std::string& more) { return fmt::format("{{{}{}}}", kAsk, more); }

// An API whose model answers with `text`.
engine::MockOptions Saying(const std::string& text) {
  engine::MockOptions mock;
  mock.answer = [text](const engine::Request&, int) { return std::vector<int32_t>(text.begin(), text.end()); };
  return mock;
}

std::string CodeOf(const HttpResponse& response) {
  const json error = json::parse(response.body)["error"];
  return fmt::format("{} {} {}", response.status, error["code"].dump(), error["param"].dump());
}

TEST(Structured, TheSchemaHolds) {
  TestApi api;
  for (const char* form :
       {R"(,"response_format":{"type":"json_schema","json_schema":{"name":"p","strict":true,"schema":S}})",
        R"(,"response_format":{"type":"json_object","schema":S})"}) {
    std::string more = form;
    more.replace(
        more.find('S', more.find("schema\":S")), 1,
        R"({"type":"object","properties":{"name":{"enum":["ann","bob"]},"age":{"type":"integer","minimum":3,"maximum":9}},"required":["name","age"],"additionalProperties":false})");
    const HttpResponse response = api.Post("/v1/chat/completions", Chat(more));
    ASSERT_EQ(response.status, 200) << response.body;
    const json choice = api.Json(response)["choices"][0];
    ASSERT_EQ(choice["finish_reason"], "stop") << choice;
    const json answer = json::parse(choice["message"]["content"].get<std::string>());
    EXPECT_TRUE(answer["name"] == "ann" || answer["name"] == "bob");
    EXPECT_GE(answer["age"], 3);
    EXPECT_LE(answer["age"], 9);
    EXPECT_EQ(answer.size(), 2u);
  }
  const json any = api.Json(api.Post("/v1/chat/completions", Chat(R"(,"response_format":{"type":"json_object"})")));
  if (any["choices"][0]["finish_reason"] == "stop") {
    EXPECT_TRUE(json::parse(any["choices"][0]["message"]["content"].get<std::string>()).is_object());
  }
}

TEST(Structured, WhatCannotBeEnforcedIsRefused) {
  TestApi api;
  const auto with = [&](const std::string& schema) {
    return CodeOf(
        api.Post("/v1/chat/completions",
                 Chat(R"(,"response_format":{"type":"json_schema","json_schema":{"schema":)" + schema + "}}")));
  };
  const std::string param = R"("response_format.json_schema.schema")";
  EXPECT_EQ(with(R"({"type":"string","pattern":"(?<=a)b"})"), "400 \"invalid_schema\" " + param);
  EXPECT_EQ(with(R"({"not":{"type":"string"}})"), "400 \"invalid_schema\" " + param);
  EXPECT_EQ(with(R"({"$ref":"https://example.org/x"})"), "400 \"invalid_schema\" " + param);
  EXPECT_EQ(with(R"({"type":"frob"})"), "400 \"invalid_schema\" " + param);
  EXPECT_EQ(CodeOf(api.Post("/v1/chat/completions", Chat(R"(,"response_format":{"type":"json_schema"})"))),
            R"(400 "invalid_value" "response_format.json_schema")");
  // A form says where the text ends; what asks for more cannot be met.
  const std::string number = R"(,"response_format":{"type":"json_object","schema":{"type":"integer"}})";
  EXPECT_EQ(CodeOf(api.Post("/v1/chat/completions", Chat(number + R"(,"ignore_eos":true)"))),
            R"(400 "unsupported_value" "ignore_eos")");
  EXPECT_EQ(CodeOf(api.Post("/v1/chat/completions", Chat(number + R"(,"min_tokens":3)"))),
            R"(400 "unsupported_value" "min_tokens")");
  std::string deep;
  for (int i = 0; i < 60000; ++i) deep += R"({"items":)";
  EXPECT_EQ(api.Post("/v1/chat/completions", Chat(R"(,"response_format":)" + deep)).status, 400);
}

TEST(Structured, ARequiredCallFitsItsTool) {
  TestApi api;
  for (const char* choice : {R"("required")", R"({"type":"function","function":{"name":"add"}})"}) {
    const HttpResponse response =
        api.Post("/v1/chat/completions", Chat(fmt::format(R"(,{},"tool_choice":{})", kTools, choice)));
    ASSERT_EQ(response.status, 200) << response.body;
    const json answer = api.Json(response)["choices"][0];
    EXPECT_EQ(answer["finish_reason"], "tool_calls") << answer;
    EXPECT_TRUE(answer["message"]["content"].is_null());
    const json call = answer["message"]["tool_calls"][0];
    EXPECT_EQ(call["type"], "function");
    EXPECT_TRUE(call["id"].get<std::string>().starts_with("call_"));
    EXPECT_EQ(call["function"]["name"], "add");
    const json arguments = json::parse(call["function"]["arguments"].get<std::string>());
    EXPECT_TRUE(arguments["a"].is_number_integer());
    EXPECT_TRUE(arguments["b"] == "x" || arguments["b"] == "y");
  }
  EXPECT_EQ(CodeOf(api.Post(
                "/v1/chat/completions",
                Chat(fmt::format(R"(,{},"tool_choice":{{"type":"function","function":{{"name":"no"}}}})", kTools)))),
            R"(400 "invalid_value" "tool_choice")");
}

// References of a tool's parameters are its own: "#" is the parameters, and two tools may use one name for different
// things. What is no reference stays as it is.
TEST(Structured, ReferencesStayInsideTheirTool) {
  TestApi api;
  const auto arguments = [&](const std::string& tools, const std::string& choice) {
    const HttpResponse response =
        api.Post("/v1/chat/completions", Chat(fmt::format(R"(,"tools":[{}],"tool_choice":{})", tools, choice)));
    if (response.status != 200) return json(response.body);
    const json call = api.Json(response)["choices"][0]["message"]["tool_calls"][0]["function"];
    return json::parse(call["arguments"].get<std::string>());
  };
  const auto tool = [](const char* name, const char* properties, const char* more) {
    return fmt::format(
        R"({{"type":"function","function":{{"name":"{}","parameters":{{"type":"object","properties":{{{}}},"additionalProperties":false{}}}}}}})",
        name, properties, more);
  };
  const auto named = [](const char* name) {
    return fmt::format(R"({{"type":"function","function":{{"name":"{}"}}}})", name);
  };
  const char* required = R"("required")";
  const std::string sibling =
      tool("f", R"("a":{"enum":["p"]},"b":{"$ref":"#/properties/a"})", R"(,"required":["a","b"])");
  EXPECT_EQ(arguments(sibling, required), json({{"a", "p"}, {"b", "p"}}));
  const std::string itself =
      tool("f", R"("leaf":{"const":1},"next":{"anyOf":[{"const":0},{"$ref":"#"}]})", R"(,"required":["leaf","next"])");
  json node = arguments(itself, required);
  while (node.is_object()) {
    EXPECT_EQ(node["leaf"], 1) << node;
    node = json(node["next"]);
  }
  EXPECT_EQ(node, 0);
  const char* uses = R"("k":{"$ref":"#/$defs/K"})";
  const std::string two = tool("f", uses, R"(,"required":["k"],"$defs":{"K":{"const":"first"}})") + "," +
                          tool("g", uses, R"(,"required":["k"],"$defs":{"K":{"const":"second"}})");
  EXPECT_EQ(arguments(two, named("f")), json({{"k", "first"}}));
  EXPECT_EQ(arguments(two, named("g")), json({{"k", "second"}}));
  EXPECT_TRUE(arguments(two, required)["k"].is_string());
  const std::string literal = tool("f", R"("$ref":{"const":{"$ref":"#"}},"enum":{"$ref":"#/$defs/K"})",
                                   R"(,"required":["$ref","enum"],"$defs":{"K":{"const":2}})");
  EXPECT_EQ(arguments(literal, required), json({{"$ref", {{"$ref", "#"}}}, {"enum", 2}}));
}

// A call that is required is one whatever its schema allows, and arguments that can be no object are refused.
TEST(Structured, ARequiredCallIsNeverPlainText) {
  TestApi api;
  const auto ask = [&](const char* parameters) {
    return api.Post("/v1/chat/completions",
                    Chat(fmt::format(R"(,"tools":[{{"type":"function","function":{{"name":"f","parameters":{}}}}}],)"
                                     R"("tool_choice":"required")",
                                     parameters)));
  };
  const std::pair<const char*, const char*> open[] = {
      {R"({"const":7})", "7"}, {R"({"enum":["{}"]})", R"("{}")"}, {R"({"const":[1,null]})", "[1,null]"}};
  for (const auto& [parameters, expected] : open) {
    const json choice = api.Json(ask(parameters))["choices"][0];
    EXPECT_EQ(choice["finish_reason"], "tool_calls") << parameters;
    EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["arguments"], expected) << choice;
  }
  // Places are those of the request, not of the schema that the calls are made into.
  const json refused = json::parse(ask(R"({"properties":{"x":{"patternProperties":{}}}})").body)["error"];
  EXPECT_NE(refused["message"].get<std::string>().find("tools[0].function.parameters/properties/x"), std::string::npos)
      << refused;
  for (const char* parameters : {R"({"type":"string"})", R"({"type":["object","null"]})", R"({"type":1})"}) {
    EXPECT_EQ(CodeOf(ask(parameters)), R"(400 "invalid_schema" "tools[0].function.parameters")") << parameters;
  }
}

TEST(Structured, CallsThatTheModelChoosesToMake) {
  const std::string said =
      "Let me see.\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": \"x\"}}\n</tool_call>";
  TestApi api(Saying(said));
  const json whole = api.Json(api.Post("/v1/chat/completions", Chat(std::string(",") + kTools)))["choices"][0];
  EXPECT_EQ(whole["finish_reason"], "tool_calls");
  EXPECT_EQ(whole["message"]["content"], "Let me see.");
  EXPECT_EQ(whole["message"]["tool_calls"][0]["function"]["arguments"], R"({"a": 1, "b": "x"})");
  // The same as a stream: name and id first, then the arguments as they are written.
  const HttpResponse response = api.Post("/v1/chat/completions", Chat(std::string(R"(,"stream":true,)") + kTools));
  std::string content, name, arguments, reason, id;
  int pieces = 0;
  for (const json& chunk : TestApi::Chunks(response.body)) {
    const json& choice = chunk["choices"][0];
    content += choice["delta"].value("content", "");
    if (choice["delta"].contains("tool_calls")) {
      const json& call = choice["delta"]["tool_calls"][0];
      EXPECT_EQ(call["index"], 0);
      id += call.value("id", "");
      name += call["function"].value("name", "");
      pieces += call["function"].value("arguments", "").empty() ? 0 : 1;
      arguments += call["function"].value("arguments", "");
    }
    if (!choice["finish_reason"].is_null()) reason = choice["finish_reason"];
  }
  EXPECT_EQ(content, "Let me see.");
  EXPECT_EQ(name, "add");
  EXPECT_EQ(arguments, R"({"a": 1, "b": "x"})");
  EXPECT_GT(pieces, 5);
  EXPECT_TRUE(id.starts_with("call_"));
  EXPECT_EQ(reason, "tool_calls");
  // Without tools the same words are words.
  const json plain = api.Json(api.Post("/v1/chat/completions", Chat("")))["choices"][0];
  EXPECT_EQ(plain["message"]["content"], said);
  EXPECT_EQ(plain["finish_reason"], "stop");
  // And with tool_choice none they are not even shown.
  const json none =
      api.Json(api.Post("/v1/chat/completions", Chat(fmt::format(R"(,{},"tool_choice":"none")", kTools))));
  EXPECT_EQ(none["choices"][0]["message"]["content"], said);
}

TEST(Structured, OneCallWhereSeveralAreNotWanted) {
  const std::string call = R"(<tool_call>{"name":"now","arguments":{"i":I}}</tool_call>)";
  std::string said;
  for (const char* i : {"1", "2", "3"}) said += std::string(call).replace(call.find('I'), 1, i) + "\n";
  TestApi api(Saying(said));
  const auto calls = [&](const char* more) {
    return api.Json(api.Post("/v1/chat/completions",
                             Chat(std::string(",") + kTools + more)))["choices"][0]["message"]["tool_calls"];
  };
  EXPECT_EQ(calls("").size(), 3u);
  EXPECT_EQ(calls(R"(,"parallel_tool_calls":true)").size(), 3u);
  const json one = calls(R"(,"parallel_tool_calls":false)");
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(json::parse(one[0]["function"]["arguments"].get<std::string>()), json({{"i", 1}}));
  const HttpResponse stream = api.Post(
      "/v1/chat/completions", Chat(std::string(",") + kTools + R"(,"parallel_tool_calls":false,"stream":true)"));
  int named = 0;
  for (const json& chunk : TestApi::Chunks(stream.body)) {
    const json delta = chunk["choices"][0]["delta"];
    if (delta.contains("tool_calls")) named += delta["tool_calls"][0]["function"].contains("name");
  }
  EXPECT_EQ(named, 1);
}

TEST(Structured, EarlierCallsGoBackThroughTheTemplate) {
  TestApi api;
  const HttpResponse response = api.Post("/apply-template", R"({"messages":[
      {"role":"user","content":"1+1?"},
      {"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"add","arguments":"{\"a\":1}"}}]},
      {"role":"tool","tool_call_id":"c","content":"2"}]})");
  EXPECT_EQ(api.Json(response)["prompt"], "<user>1+1?</user><assistant></assistant><tool>2</tool><assistant>");
}

TEST(Structured, ATemplateWithoutToolsSaysSo) {
  ApiOptions options = TestApi::DefaultOptions();
  options.templates.templates["default"] = "{% for m in messages %}{{ m.content }}{% endfor %}";
  TestApi api({}, options);
  EXPECT_EQ(CodeOf(api.Post("/v1/chat/completions", Chat(std::string(",") + kTools))),
            R"(400 "unsupported_value" "tools")");
  TestApi none({}, ApiOptions{});
  EXPECT_EQ(CodeOf(none.Post("/v1/chat/completions", Chat(""))), R"(400 "unsupported_value" "messages")");
}

TEST(Structured, ReasoningIsAFieldOfItsOwn) {
  ApiOptions options = TestApi::DefaultOptions();
  options.templates.templates["default"] = std::string(kTestTemplate) + "{# <think> #}";
  TestApi api(Saying("<think>\nhm\n</think>\n\nYes."), options);
  const json whole = api.Json(api.Post("/v1/chat/completions", Chat("")))["choices"][0]["message"];
  EXPECT_EQ(whole["reasoning_content"], "hm");
  EXPECT_EQ(whole["content"], "Yes.");
  std::string reasoning, content;
  for (const json& chunk : TestApi::Chunks(api.Post("/v1/chat/completions", Chat(R"(,"stream":true)")).body)) {
    reasoning += chunk["choices"][0]["delta"].value("reasoning_content", "");
    content += chunk["choices"][0]["delta"].value("content", "");
  }
  EXPECT_EQ(reasoning, "hm");
  EXPECT_EQ(content, "Yes.");
}

TEST(Structured, ATemplateThatRefusesIsA400) {
  ApiOptions options = TestApi::DefaultOptions();
  options.templates.templates["default"] = "{{ raise_exception('no') }}";
  TestApi api({}, options);
  EXPECT_EQ(CodeOf(api.Post("/v1/chat/completions", Chat(""))), R"(400 "template_error" "messages")");
}

}  // namespace
}  // namespace octavo::server
