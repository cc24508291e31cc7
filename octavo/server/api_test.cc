// Routes without sockets, over a service that repeats the prompt: exact fields of every answer.
#include "octavo/server/api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "octavo/server/server_test_support.h"

namespace octavo::server {
namespace {

using nlohmann::json;

std::string ErrorOf(const HttpResponse& response) {
  const json error = json::parse(response.body).at("error");
  const auto text = [&](const char* key) { return error.at(key).is_null() ? "-" : error.at(key).get<std::string>(); };
  EXPECT_FALSE(error.at("message").get<std::string>().empty());
  return fmt::format("{} {} {} {}", response.status, text("type"), text("code"), text("param"));
}

const std::string* FindHeader(const HttpResponse& response, std::string_view name) {
  for (const auto& header : response.headers) {
    if (header.first == name) return &header.second;
  }
  return nullptr;
}

TEST(Api, HealthModelsVersion) {
  engine::MockOptions mock;
  mock.adapters = {"helper"};
  TestApi api(mock);
  EXPECT_EQ(api.Get("/health").body, "{\"status\":\"ok\"}\n");
  EXPECT_EQ(api.Get("/v1/health").status, 200);
  const json models = api.Json(api.Get("/v1/models"));
  EXPECT_EQ(models["object"], "list");
  ASSERT_EQ(models["data"].size(), 2u);
  const json& first = models["data"][0];
  EXPECT_EQ(first["id"], "mock");
  EXPECT_EQ(first["object"], "model");
  EXPECT_EQ(first["owned_by"], "octavo");
  EXPECT_EQ(first["max_model_len"], 4096);
  EXPECT_TRUE(first["created"].is_number_integer());
  for (const char* key : {"n_params", "size", "quantization"}) EXPECT_TRUE(first["meta"].contains(key)) << key;
  EXPECT_EQ(first["meta"]["chat"], true);
  EXPECT_EQ(models["data"][1]["id"], "helper");
  EXPECT_EQ(models["data"][1]["parent"], "mock");
  EXPECT_EQ(api.Json(api.Get("/v1/models/helper"))["id"], "helper");
  EXPECT_EQ(ErrorOf(api.Get("/v1/models/other")), "404 not_found_error model_not_found model");
  EXPECT_TRUE(api.Json(api.Get("/version")).contains("version"));
}

// What the chat page asks before it offers a field.
TEST(Api, AModelWithoutAChatTemplateSaysSo) {
  TestApi api({}, ApiOptions());
  EXPECT_EQ(api.Json(api.Get("/v1/models"))["data"][0]["meta"]["chat"], false);
  EXPECT_EQ(api.Json(api.Get("/v1/models/mock"))["meta"]["chat"], false);
}

TEST(Api, UnknownPathsAndMethods) {
  TestApi api;
  EXPECT_EQ(ErrorOf(api.Get("/v2/models")), "404 not_found_error - -");
  const HttpResponse wrong = api.Get("/v1/completions");
  EXPECT_EQ(ErrorOf(wrong), "405 invalid_request_error - -");
  ASSERT_NE(FindHeader(wrong, "Allow"), nullptr);
  EXPECT_EQ(*FindHeader(wrong, "Allow"), "POST");
  EXPECT_EQ(
      ErrorOf(api.Ask(
          {.method = "POST", .path = "/v1/completions", .headers = {{"Content-Type", "text/plain"}}, .body = "{}"})),
      "415 invalid_request_error - -");
  EXPECT_EQ(api.Ask({.method = "POST",
                     .path = "/v1/completions",
                     .headers = {{"Content-Type", "application/json; charset=utf-8"}},
                     .body = R"({"prompt":"ab"})"})
                .status,
            200);
}

TEST(Api, CompletionHasExactlyTheFieldsOfTheApi) {
  TestApi api;
  const json answer = api.Json(api.Post("/v1/completions", R"({"model":"mock","prompt":"abc","max_tokens":5})"));
  std::vector<std::string> keys;
  for (const auto& item : answer.items()) keys.push_back(item.key());
  EXPECT_THAT(keys, testing::UnorderedElementsAre("id", "object", "created", "model", "system_fingerprint", "choices",
                                                  "usage"));
  EXPECT_TRUE(answer["id"].get<std::string>().starts_with("cmpl-"));
  EXPECT_EQ(answer["object"], "text_completion");
  EXPECT_EQ(answer["model"], "mock");
  EXPECT_EQ(answer["choices"].dump(), R"([{"finish_reason":"length","index":0,"logprobs":null,"text":"abcab"}])");
  EXPECT_EQ(answer["usage"]["completion_tokens"], 5);
  EXPECT_EQ(answer["usage"]["total_tokens"].get<int>(),
            answer["usage"]["prompt_tokens"].get<int>() + answer["usage"]["completion_tokens"].get<int>());
  EXPECT_TRUE(answer["usage"]["prompt_tokens_details"].contains("cached_tokens"));
}

TEST(Api, PromptsOfEveryFormAndSeveralSamples) {
  TestApi api;
  const auto texts = [&](const std::string& body) {
    std::vector<std::string> result;
    const json answer = api.Json(api.Post("/v1/completions", body));
    for (size_t i = 0; i < answer["choices"].size(); ++i) {
      EXPECT_EQ(answer["choices"][i]["index"], i);
      result.push_back(answer["choices"][i]["text"]);
    }
    return result;
  };
  using testing::ElementsAre;
  EXPECT_THAT(texts(R"({"prompt":["ab","xyz"],"max_tokens":4})"), ElementsAre("abab", "xyzx"));
  EXPECT_THAT(texts(R"({"prompt":[97,98],"max_tokens":3})"), ElementsAre("aba"));
  EXPECT_THAT(texts(R"({"prompt":[[97],[98,99]],"max_tokens":3})"), ElementsAre("aaa", "bcb"));
  EXPECT_THAT(texts(R"({"prompt":["ab","cd"],"max_tokens":2,"n":2})"), ElementsAre("ab", "ba", "cd", "dc"));
  EXPECT_THAT(texts(R"({"prompt":"abc","max_tokens":9,"stop":"ca"})"), ElementsAre("ab"));
  EXPECT_THAT(texts(R"({"prompt":"abc","max_tokens":9,"stop":["zz","bc"]})"), ElementsAre("a"));
  EXPECT_THAT(texts(R"({"prompt":"abc","max_tokens":2,"echo":true})"), ElementsAre("abcab"));
}

TEST(Api, LogprobsOfCompletionsAsTheHarnessReadsThem) {
  TestApi api;
  const json answer = api.Json(api.Post(
      "/v1/completions",
      R"({"model":"mock","prompt":[[104,105,33]],"temperature":0,"max_tokens":1,"logprobs":1,"seed":1234,"echo":true})"));
  const json& logprobs = answer["choices"][0]["logprobs"];
  EXPECT_EQ(answer["choices"][0]["text"], "hi!h");
  EXPECT_EQ(logprobs["tokens"].dump(), R"(["h","i","!","h"])");
  EXPECT_EQ(logprobs["token_logprobs"].dump(), "[null,-0.25,-0.25,-0.5]");
  EXPECT_EQ(logprobs["text_offset"].dump(), "[0,1,2,3]");
  ASSERT_EQ(logprobs["top_logprobs"].size(), 4u);
  EXPECT_TRUE(logprobs["top_logprobs"][0].is_null());
  EXPECT_EQ(logprobs["top_logprobs"][3].size(), 1u);
  const json none = api.Json(api.Post("/v1/completions", R"({"prompt":"ab","max_tokens":0,"echo":true,"logprobs":0})"));
  EXPECT_EQ(none["choices"][0]["text"], "ab");
  EXPECT_EQ(none["choices"][0]["logprobs"]["tokens"].size(), none["usage"]["prompt_tokens"].get<size_t>());
}

// Offsets count characters of the text that is returned, and echo gives the prompt back as it was sent.
TEST(Api, TextOffsetsAreThoseOfTheText) {
  TestApi api;
  const auto ask = [&](const std::string& body) { return api.Json(api.Post("/v1/completions", body))["choices"]; };
  const json plain = ask(R"({"prompt":"aé😀","max_tokens":8,"logprobs":0,"n":2})");
  EXPECT_EQ(plain[0]["text"], "aé😀a");
  EXPECT_EQ(plain[0]["logprobs"]["text_offset"].dump(), "[0,1,1,2,2,2,2,3]");
  const json echo = ask(R"({"prompt":"a<s>é","add_special_tokens":false,"max_tokens":1,"logprobs":0,"echo":true})");
  EXPECT_EQ(echo[0]["text"], "a<s>éa");
  EXPECT_EQ(echo[0]["logprobs"]["text_offset"].dump(), "[0,1,4,4,5]");
  // Of ids: special tokens leave no text.
  const std::string ids = R"({"prompt":[256,97,195,169,257,98],"max_tokens":2,"logprobs":0,"echo":true,"n":2)";
  for (const json& choice : ask(ids + "}")) {
    EXPECT_TRUE(choice["text"].get<std::string>().starts_with("aéb"));
    EXPECT_EQ(choice["logprobs"]["text_offset"].dump().substr(0, 15), "[0,0,1,1,2,2,3,");
  }
  std::vector<json> offsets;
  for (const json& chunk : TestApi::Chunks(api.Post("/v1/completions", ids + R"(,"stream":true})").body)) {
    const json& choice = chunk["choices"][0];
    if (choice["index"] != 0 || choice["logprobs"].is_null()) continue;
    for (const json& offset : choice["logprobs"]["text_offset"]) offsets.push_back(offset);
  }
  EXPECT_EQ(json(offsets).dump(), "[0,0,1,1,2,2,3,4]");
}

TEST(Api, ChatGoesThroughTheTemplate) {
  TestApi api;
  const json answer = api.Json(api.Post(
      "/v1/chat/completions",
      R"({"model":"mock","messages":[{"role":"user","content":"hi"}],"max_completion_tokens":8,"max_tokens":3})"));
  EXPECT_TRUE(answer["id"].get<std::string>().starts_with("chatcmpl-"));
  EXPECT_EQ(answer["object"], "chat.completion");
  EXPECT_EQ(
      answer["choices"].dump(),
      R"([{"finish_reason":"length","index":0,"logprobs":null,"message":{"content":"<user>hi","refusal":null,"role":"assistant"}}])");
  const json parts = api.Json(api.Post(
      "/v1/chat/completions",
      R"({"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}],"max_tokens":9})"));
  EXPECT_EQ(parts["choices"][0]["message"]["content"], "<user>a\nb");
  EXPECT_EQ(api.Json(api.Post("/apply-template",
                              R"({"messages":[{"role":"developer","content":"x"},{"role":"user","content":"y"}]})"))
                .dump(),
            R"({"prompt":"<system>x</system><user>y</user><assistant>"})");
  EXPECT_EQ(
      api
          .Json(api.Post(
              "/apply-template",
              R"({"messages":[{"role":"user","content":"y"},{"role":"assistant","content":"z"}],"continue_final_message":true})"))
          .dump(),
      R"({"prompt":"<user>y</user><assistant>z"})");
}

TEST(Api, ChatLogprobsAndTokenIds) {
  TestApi api;
  const json answer = api.Json(api.Post(
      "/v1/chat/completions",
      R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":1,"logprobs":true,"top_logprobs":2,"return_token_ids":true})"));
  const json& content = answer["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), 1u);
  EXPECT_EQ(content[0]["token"], "<");
  EXPECT_EQ(content[0]["bytes"].dump(), "[60]");
  EXPECT_EQ(content[0]["logprob"], -0.5);
  ASSERT_EQ(content[0]["top_logprobs"].size(), 2u);
  EXPECT_TRUE(content[0]["top_logprobs"][1].contains("bytes"));
  EXPECT_EQ(answer["choices"][0]["token_ids"].dump(), "[60]");
  EXPECT_EQ(answer["prompt_token_ids"].size(), answer["usage"]["prompt_tokens"].get<size_t>());
}

TEST(Api, StreamOfChat) {
  TestApi api;
  const HttpResponse response = api.Post(
      "/v1/chat/completions",
      R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":8,"stream":true,"stream_options":{"include_usage":true}})");
  EXPECT_EQ(response.content_type, "text/event-stream");
  bool done = false;
  const std::vector<json> chunks = TestApi::Chunks(response.body, &done);
  EXPECT_TRUE(done);
  ASSERT_GE(chunks.size(), 4u);
  EXPECT_EQ(chunks[0]["object"], "chat.completion.chunk");
  EXPECT_EQ(chunks[0]["choices"][0]["delta"]["role"], "assistant");
  std::string text;
  for (const json& chunk : chunks) {
    EXPECT_EQ(chunk["id"], chunks[0]["id"]);
    if (!chunk["choices"].empty()) text += chunk["choices"][0]["delta"].value("content", "");
  }
  EXPECT_EQ(text, "<user>hi");
  const json& last = chunks[chunks.size() - 2]["choices"][0];
  EXPECT_EQ(last["delta"].dump(), "{}");
  EXPECT_EQ(last["finish_reason"], "length");
  EXPECT_TRUE(chunks.back()["choices"].empty());
  EXPECT_EQ(chunks.back()["usage"]["completion_tokens"], 8);
}

TEST(Api, UsageOnlyIfAsked) {
  TestApi api;
  const HttpResponse response = api.Post("/v1/completions", R"({"prompt":"abc","max_tokens":4,"stream":true})");
  std::string text;
  for (const json& chunk : TestApi::Chunks(response.body)) {
    EXPECT_FALSE(chunk.contains("usage"));
    ASSERT_EQ(chunk["choices"].size(), 1u);
    text += chunk["choices"][0]["text"];
  }
  EXPECT_EQ(text, "abca");
}

TEST(Api, AStreamNeverCutsACharacter) {
  TestApi api;
  const HttpResponse response = api.Post("/v1/completions", R"({"prompt":"aé😀","max_tokens":21,"stream":true})");
  std::string text;
  for (const json& chunk : TestApi::Chunks(response.body)) text += chunk["choices"][0]["text"];
  EXPECT_EQ(text, "aé😀aé😀aé😀");
}

TEST(Api, UnknownFieldsAreNamedOrRefused) {
  TestApi api;
  const std::string body = R"({"prompt":"ab","max_tokens":1,"user":"me","frobnicate":1})";
  const HttpResponse response = api.Post("/v1/completions", body);
  EXPECT_EQ(response.status, 200);
  ASSERT_NE(FindHeader(response, "x-octavo-ignored"), nullptr);
  EXPECT_EQ(*FindHeader(response, "x-octavo-ignored"), "user, frobnicate");
  const HttpResponse split = api.Post("/v1/completions", R"({"prompt":"ab","max_tokens":1,"x\r\nSet-Cookie: a=b":1})");
  EXPECT_EQ(*FindHeader(split, "x-octavo-ignored"), "x??Set-Cookie:?a=b");
  ApiOptions options = TestApi::DefaultOptions();
  options.strict_request = true;
  TestApi strict({}, options);
  EXPECT_EQ(ErrorOf(strict.Post("/v1/completions", body)), "400 invalid_request_error unknown_field user");
}

TEST(Api, WhatIsRefusedNamesTheField) {
  TestApi api;
  const std::pair<const char*, const char*> completions[] = {
      {"", "400 invalid_request_error - -"},
      {"[]", "400 invalid_request_error - -"},
      {"{", "400 invalid_request_error - -"},
      {R"({"prompt":"a","prompt":"b"})", "400 invalid_request_error - -"},
      {R"({"prompt":"a"} x)", "400 invalid_request_error - -"},
      {"{\"prompt\":\"\xff\"}", "400 invalid_request_error - -"},
      {R"({})", "400 invalid_request_error invalid_value prompt"},
      {R"({"prompt":[]})", "400 invalid_request_error invalid_value prompt"},
      {R"({"prompt":[[]]})", "400 invalid_request_error invalid_value prompt"},
      {R"({"prompt":[1,"a"]})", "400 invalid_request_error invalid_value prompt"},
      {R"({"prompt":[100000]})", "400 invalid_request_error invalid_value prompt"},
      {R"({"prompt":{}})", "400 invalid_request_error invalid_value prompt"},
      {R"({"prompt":"a","suffix":"b"})", "400 invalid_request_error unsupported_value suffix"},
      {R"({"prompt":"a","best_of":3})", "400 invalid_request_error unsupported_value best_of"},
      {R"({"prompt":"a","model":"gpt"})", "404 not_found_error model_not_found model"},
      {R"({"prompt":"a","stop":[""]})", "400 invalid_request_error invalid_value stop"},
      {R"({"prompt":"a","stream_options":{}})", "400 invalid_request_error invalid_value stream_options"},
      {R"({"prompt":"a","logit_bias":{"x":1}})", "400 invalid_request_error invalid_value logit_bias"},
      {R"({"prompt":"a","logit_bias":{"5":101}})", "400 invalid_request_error invalid_value logit_bias.5"},
      {R"({"prompt":"a","grammar":"x"})", "400 invalid_request_error unsupported_value grammar"},
      {R"({"prompt":"a","guided_json":{}})", "400 invalid_request_error unsupported_value guided_json"},
      {R"({"prompt":"a","max_tokens":4096})", "400 invalid_request_error context_length_exceeded max_tokens"},
  };
  for (const auto& [body, expected] : completions) {
    EXPECT_EQ(ErrorOf(api.Post("/v1/completions", body)), expected) << body;
  }
  const std::pair<const char*, const char*> chats[] = {
      {R"({})", "400 invalid_request_error invalid_value messages"},
      {R"({"messages":[]})", "400 invalid_request_error invalid_value messages"},
      {R"({"messages":[{"role":"user"}]})", "400 invalid_request_error invalid_value messages[0].content"},
      {R"({"messages":[{"role":"root","content":"x"}]})", "400 invalid_request_error invalid_value messages[0].role"},
      {R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://x/"}}]}]})",
       "400 invalid_request_error unsupported_value messages[0].content[0].type"},
      {R"({"messages":[{"role":"user","content":"x"}],"top_logprobs":2})",
       "400 invalid_request_error invalid_value top_logprobs"},
      {R"({"messages":[{"role":"user","content":"x"}],"chat_template_kwargs":{"messages":[]}})",
       "400 invalid_request_error invalid_value chat_template_kwargs.messages"},
      {R"({"messages":[{"role":"user","content":"x"}],"chat_template_kwargs":{"bos_token":"x"}})",
       "400 invalid_request_error invalid_value chat_template_kwargs.bos_token"},
      {R"({"messages":[{"role":"user","content":"x"}],"tool_choice":"required"})",
       "400 invalid_request_error invalid_value tool_choice"},
      {R"({"messages":[{"role":"user","content":"x"}],"response_format":{"type":"xml"}})",
       "400 invalid_request_error unsupported_value response_format.type"},
      {R"({"messages":[{"role":"user","content":"x"}],"continue_final_message":true})",
       "400 invalid_request_error invalid_value continue_final_message"},
      {R"({"messages":[{"role":"user","content":"x"}],"functions":[]})",
       "400 invalid_request_error unsupported_value functions"},
  };
  for (const auto& [body, expected] : chats) {
    EXPECT_EQ(ErrorOf(api.Post("/v1/chat/completions", body)), expected) << body;
  }
}

// What the engine refuses is said in the words of the request, in one line.
TEST(Api, RefusalsOfTheEngineNameTheFieldThatWasSent) {
  TestApi api;
  const auto refused = [&](const std::string& path, const std::string& body) {
    const HttpResponse response = api.Post(path, body);
    const std::string message = json::parse(response.body)["error"]["message"];
    for (const char* word : {"\n", "new_tokens", "samples", "max_target_length", "prompt='"}) {
      EXPECT_EQ(message.find(word), std::string::npos) << message;
    }
    return ErrorOf(response);
  };
  const std::string exceeded = "400 invalid_request_error context_length_exceeded ";
  const auto chat = [](size_t letters, const char* more) {
    return fmt::format(R"({{"messages":[{{"role":"user","content":"{}"}}]{}}})", std::string(letters, 'x'), more);
  };
  EXPECT_EQ(refused("/v1/chat/completions", chat(5000, "")), exceeded + "messages");
  EXPECT_EQ(refused("/v1/chat/completions", chat(9, R"(,"max_tokens":4090)")), exceeded + "max_tokens");
  EXPECT_EQ(refused("/v1/chat/completions", chat(9, R"(,"max_completion_tokens":4090)")),
            exceeded + "max_completion_tokens");
  EXPECT_EQ(refused("/v1/completions", R"({"prompt":")" + std::string(5000, 'x') + "\"}"), exceeded + "prompt");
  EXPECT_EQ(refused("/v1/completions", R"({"prompt":"x","max_tokens":3,"min_tokens":4})"),
            "400 invalid_request_error invalid_value min_tokens");
}

TEST(Api, DeepJsonIsRefused) {
  TestApi api;
  const std::string deep(1000000, '[');
  EXPECT_EQ(ErrorOf(api.Post("/v1/completions", R"({"prompt":)" + deep)), "400 invalid_request_error - -");
}

// What would cost many times its size to read is refused before.
TEST(Api, LargeRequestsAreRefusedEarly) {
  TestApi api;
  const auto list = [](std::string_view item, size_t count) {
    std::string text;
    for (size_t i = 0; i < count; ++i) text += (i > 0 ? "," : "") + std::string(item);
    return text;
  };
  const HttpResponse values = api.Post("/v1/completions", R"({"prompt":[)" + list("1", 1100000) + "]}");
  EXPECT_EQ(ErrorOf(values), "400 invalid_request_error - -");
  EXPECT_NE(values.body.find("more than 1048576 values"), std::string::npos) << values.body;
  const HttpResponse lists = api.Post("/v1/completions", R"({"prompt":[)" + list("[]", 140000) + "]}");
  EXPECT_NE(lists.body.find("more than 131072 objects and lists"), std::string::npos) << lists.body;
  // A byte is a token or part of one of the two special tokens here.
  const std::string text(200000, 'x');
  const HttpResponse prompt = api.Post("/v1/completions", R"({"prompt":")" + text + "\"}");
  EXPECT_EQ(ErrorOf(prompt), "400 invalid_request_error context_length_exceeded prompt");
  EXPECT_NE(prompt.body.find("a text of 200000 bytes, the 4096 tokens"), std::string::npos) << prompt.body;
  EXPECT_EQ(ErrorOf(api.Post("/v1/chat/completions", R"({"messages":[{"role":"user","content":")" + text + "\"}]}")),
            "400 invalid_request_error context_length_exceeded messages");
  const auto tokenize = [&](size_t bytes) {
    return api.Post("/tokenize", R"({"content":")" + std::string(bytes, 'x') + "\"}");
  };
  EXPECT_EQ(tokenize(1000000).status, 200);
  EXPECT_EQ(ErrorOf(tokenize(1000001)), "400 invalid_request_error invalid_value content");
  EXPECT_EQ(ErrorOf(tokenize((size_t{4} << 20) + 1)), "413 invalid_request_error - content");
}

TEST(Api, FullQueueStoppingAndFaults) {
  engine::MockOptions mock;
  mock.slots = 1;
  mock.max_queue = 1;
  mock.retry_seconds = 300;
  mock.poison_token = '!';
  TestApi api(mock);
  const HttpResponse fault = api.Post("/v1/completions", R"({"prompt":"a!","max_tokens":9})");
  EXPECT_EQ(ErrorOf(fault), "500 server_error nan_logits -");
  EXPECT_EQ(*FindHeader(fault, "x-should-retry"), "false");
  const HttpResponse cut = api.Post("/v1/completions", R"({"prompt":"a!","max_tokens":9,"stream":true})");
  EXPECT_EQ(cut.status, 200);
  EXPECT_EQ(TestApi::Chunks(cut.body).back()["error"]["code"], "nan_logits");

  api.service.Pause();
  std::vector<std::shared_ptr<FakeExchange>> waiting;
  HttpResponse busy;
  for (int i = 0; i < 4 && busy.status != 429; ++i) {
    HttpRequest request{.method = "POST", .path = "/v1/completions", .body = R"({"prompt":"ab","max_tokens":2})"};
    waiting.push_back(std::make_shared<FakeExchange>(request));
    api.router.Answer(waiting.back());
    if (i >= 1) busy = waiting.back()->posted() ? busy : waiting.back()->Wait();
  }
  EXPECT_EQ(ErrorOf(busy), "429 rate_limit_error queue_full -");
  EXPECT_EQ(*FindHeader(busy, "Retry-After"), "60");  // never longer
  api.service.Resume();
  for (size_t i = 0; i + 1 < waiting.size(); ++i) EXPECT_EQ(waiting[i]->Wait().status, 200);

  api.api.BeginDrain();
  EXPECT_EQ(ErrorOf(api.Get("/health")), "503 unavailable_error draining -");
  const HttpResponse late = api.Post("/v1/completions", R"({"prompt":"ab"})");
  EXPECT_EQ(ErrorOf(late), "503 unavailable_error draining -");
  EXPECT_NE(FindHeader(late, "Retry-After"), nullptr);
}

// A list of prompts runs whole or not at all, and one that never could is no matter of waiting.
TEST(Api, AListOfPromptsIsTakenWholeOrNotAtAll) {
  engine::MockOptions mock;
  mock.max_queue = 3;
  TestApi api(mock);
  const HttpResponse many = api.Post("/v1/completions", R"({"prompt":["a","b","c","d"],"max_tokens":2})");
  EXPECT_EQ(ErrorOf(many), "400 invalid_request_error invalid_value prompt");
  EXPECT_NE(many.body.find("4 prompts in one request, at most 3"), std::string::npos) << many.body;
  api.service.Pause();
  HttpRequest request{.method = "POST", .path = "/v1/completions", .body = R"({"prompt":["a","b"],"max_tokens":2})"};
  const auto first = std::make_shared<FakeExchange>(request);
  api.router.Answer(first);
  EXPECT_EQ(ErrorOf(api.Post("/v1/completions", request.body)), "429 rate_limit_error queue_full -");
  EXPECT_EQ(api.service.Stats().waiting, 2);
  api.service.Resume();
  EXPECT_EQ(first->Wait().status, 200);
  EXPECT_EQ(api.service.Stats().finished, 2);
}

TEST(Api, AClientThatLeavesFreesItsSlot) {
  TestApi api;
  api.service.Pause();
  HttpRequest request{.method = "POST", .path = "/v1/completions", .body = R"({"prompt":"ab","max_tokens":4000})"};
  const auto exchange = std::make_shared<FakeExchange>(request);
  api.router.Answer(exchange);
  exchange->Leave();
  api.service.Resume();
  while (api.service.Stats().cancelled == 0) std::this_thread::yield();
  EXPECT_EQ(api.service.Stats().cancelled, 1);
  while (api.service.Stats().running + api.service.Stats().waiting > 0) std::this_thread::yield();
}

TEST(Api, PingsWhileNothingComes) {
  TestApi api;
  api.service.Pause();
  HttpRequest request{.method = "POST", .path = "/v1/completions", .body = R"({"prompt":"ab","stream":true})"};
  const auto exchange = std::make_shared<FakeExchange>(request);
  api.router.Answer(exchange);
  exchange->Tick();
  EXPECT_EQ(exchange->pieces().back(), ": ping\n\n");
  api.service.Resume();
  EXPECT_TRUE(exchange->Wait().body.ends_with("data: [DONE]\n\n"));
}

TEST(Api, TokenRoutes) {
  TestApi api;
  EXPECT_EQ(api.Json(api.Post("/tokenize", R"({"content":"hi"})")).dump(),
            R"({"count":2,"max_model_len":4096,"tokens":[104,105]})");
  EXPECT_EQ(api.Json(api.Post("/tokenize", R"({"content":"h","with_pieces":true})"))["tokens"].dump(),
            R"([{"id":104,"piece":"h"}])");
  EXPECT_EQ(api.Json(api.Post("/tokenize", R"({"messages":[{"role":"user","content":"x"}]})"))["count"], 25);
  EXPECT_EQ(api.Json(api.Post("/detokenize", R"({"tokens":[104,105]})"))["content"], "hi");
  EXPECT_EQ(ErrorOf(api.Post("/detokenize", R"({"tokens":[-1]})")), "400 invalid_request_error invalid_value tokens");
  EXPECT_EQ(ErrorOf(api.Post("/tokenize", R"({})")), "400 invalid_request_error invalid_value content");
}

TEST(Api, TokenRoutesNameWhatTheyIgnore) {
  TestApi api;
  ApiOptions options = TestApi::DefaultOptions();
  options.strict_request = true;
  TestApi strict({}, options);
  const std::pair<const char*, const char*> routes[] = {
      {"/tokenize", R"("content":"hi")"},
      {"/tokenize", R"("messages":[{"role":"user","content":"x"}])"},
      {"/detokenize", R"("tokens":[104])"},
      {"/apply-template", R"("messages":[{"role":"user","content":"x"}])"}};
  for (const auto& route : routes) {
    const char *path = route.first, *fields = route.second;
    const auto body = [&](const char* more) { return fmt::format("{{{}{}}}", fields, more); };
    EXPECT_EQ(FindHeader(api.Post(path, body(R"(,"model":"mock")")), "x-octavo-ignored"), nullptr) << path;
    const HttpResponse other = api.Post(path, body(R"(,"frob":1)"));
    EXPECT_EQ(other.status, 200);
    ASSERT_NE(FindHeader(other, "x-octavo-ignored"), nullptr) << path;
    EXPECT_EQ(*FindHeader(other, "x-octavo-ignored"), "frob");
    EXPECT_EQ(ErrorOf(strict.Post(path, body(R"(,"frob":1)"))), "400 invalid_request_error unknown_field frob");
    EXPECT_EQ(ErrorOf(api.Post(path, body(R"(,"model":"gpt")"))), "404 not_found_error model_not_found model");
  }
}

TEST(Api, MetricsCountWhatHappened) {
  TestApi api;
  const std::string fresh = api.Get("/metrics").body;
  for (const char* reason : {"stop", "length", "tool_calls", "cancelled", "error"}) {
    const std::string line =
        fmt::format("octavo_request_success_total{{model_name=\"mock\",finished_reason=\"{}\"}} 0\n", reason);
    EXPECT_NE(fresh.find(line), std::string::npos) << line;
  }
  for (const char* reason : {"queue_full", "draining", "invalid"}) {
    const std::string line =
        fmt::format("octavo_request_rejected_total{{model_name=\"mock\",reason=\"{}\"}} 0\n", reason);
    EXPECT_NE(fresh.find(line), std::string::npos) << line;
  }
  api.Post("/v1/completions", R"({"prompt":"abc","max_tokens":5})");
  api.Post("/v1/completions", R"({"prompt":1})");
  const auto settle = [](TestApi& one) {  // a request is answered before its slot is counted as free
    while (one.service.Stats().running > 0) std::this_thread::yield();
  };
  settle(api);
  const std::string text = api.Get("/metrics").body;
  for (const char* line :
       {"octavo_generation_tokens_total{model_name=\"mock\"} 5\n",
        "octavo_request_success_total{model_name=\"mock\",finished_reason=\"length\"} 1\n",
        "octavo_request_rejected_total{model_name=\"mock\",reason=\"invalid\"} 1\n",
        "octavo_num_requests_running{model_name=\"mock\"} 0\n",
        "octavo_time_to_first_token_seconds_count{model_name=\"mock\"} 1\n",
        "octavo_inter_token_latency_seconds_count{model_name=\"mock\"} 4\n",
        "octavo_request_generation_tokens_bucket{model_name=\"mock\",le=\"5\"} 1\n", "octavo_kv_cache_usage_perc{"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  }
  ApiOptions options = TestApi::DefaultOptions();
  options.metrics_prefix = "vllm:";
  EXPECT_NE(TestApi({}, options).Get("/metrics").body.find("\nvllm:num_requests_waiting{model_name=\"mock\"} 0\n"),
            std::string::npos);
  options.metrics_prefix = "jetstream_";
  TestApi jetstream({}, options);
  jetstream.api.set_startup_seconds(1.5);
  jetstream.Post("/v1/completions", R"({"prompt":"abc","max_tokens":5})");
  settle(jetstream);
  const std::string names = jetstream.Get("/metrics").body;
  // All that JetStream has.
  for (const char* line :
       {"prefill_backlog_size 0", "transfer_backlog_size 0", "generate_backlog_size 0", "slots_used_percentage 0",
        "server_startup_latency 1.5", "request_success_count 1", "queue_duration_count 1",
        "request_input_length_count 1", "request_output_length_sum 5", "time_to_first_token_count 1",
        "time_per_output_token_count 4", "time_per_prefill_token_count 1", "time_per_request_count 1",
        "wait_time_per_request_count 1"}) {
    EXPECT_NE(names.find(fmt::format("\njetstream_{}\n", line)), std::string::npos) << line << names;
  }
}

// A request that the end of the server cuts: 503 that says when to come back.
TEST(Api, ARequestThatIsCutByTheEndSaysWhenToComeBack) {
  engine::MockOptions mock;
  mock.step_seconds = 0.005;
  TestApi api(mock);
  HttpRequest request{.method = "POST", .path = "/v1/completions", .body = R"({"prompt":"ab","max_tokens":4000})"};
  const auto exchange = std::make_shared<FakeExchange>(request);
  api.router.Answer(exchange);
  api.service.Drain(0);
  const HttpResponse response = exchange->Wait();
  EXPECT_EQ(ErrorOf(response), "503 unavailable_error draining -");
  ASSERT_NE(FindHeader(response, "Retry-After"), nullptr);
  EXPECT_EQ(*FindHeader(response, "Retry-After"), "5");
}

}  // namespace
}  // namespace octavo::server
