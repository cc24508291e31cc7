// Every numeric field with every number that has broken a server somewhere: an
// answer or a 400, never a 5xx.
#include <gtest/gtest.h>

#include "octavo/server/server_test_support.h"

namespace octavo::server {
namespace {

constexpr const char* kValues[] = {"-9223372036854775809",
                                   "-9223372036854775808",
                                   "-2147483649",
                                   "-2",
                                   "-1",
                                   "0",
                                   "1",
                                   "2147483647",
                                   "2147483648",
                                   "4294967296",
                                   "9223372036854775807",
                                   "9223372036854775808",
                                   "1e308",
                                   "1e309",
                                   "-1e308",
                                   "1e-400",
                                   "0.5",
                                   "NaN",
                                   "Infinity",
                                   "\"1\"",
                                   "[]",
                                   "{}",
                                   "true",
                                   "null"};

TEST(ApiNumbers, NoValueOfANumberIsAFault) {
  TestApi api;
  const char* shared[] = {"temperature",
                          "top_p",
                          "n",
                          "seed",
                          "top_k",
                          "min_p",
                          "repetition_penalty",
                          "min_tokens",
                          "presence_penalty",
                          "frequency_penalty",
                          "max_tokens",
                          "stop_token_ids",
                          "logit_bias",
                          "stream_options",
                          "stop",
                          "ignore_eos",
                          "return_token_ids"};
  int accepted = 0, refused = 0;
  const auto check = [&](const std::string& path, const std::string& body) {
    const HttpResponse response = api.Post(path, body);
    const bool fine = response.status == 200 || response.status == 400 || response.status == 404;
    EXPECT_TRUE(fine) << response.status << " " << body;
    (response.status == 200 ? accepted : refused) += 1;
  };
  for (const char* value : kValues) {
    for (const char* name : shared) {
      const std::string limit = std::string(name) == "max_tokens" ? "" : R"("max_tokens":2,)";
      check("/v1/completions", fmt::format(R"({{{}"prompt":"ab","{}":{}}})", limit, name, value));
      check("/v1/chat/completions",
            fmt::format(R"({{{}"messages":[{{"role":"user","content":"x"}}],"{}":{}}})", limit, name, value));
    }
    for (const char* name : {"best_of", "logprobs", "echo", "prompt", "suffix", "model"}) {
      const char* rest = std::string(name) == "prompt" ? "" : R"("prompt":"ab",)";
      check("/v1/completions", fmt::format(R"({{{}"max_tokens":2,"{}":{}}})", rest, name, value));
    }
    for (const char* name : {"top_logprobs", "max_completion_tokens", "logprobs", "tools", "tool_choice",
                             "response_format", "chat_template_kwargs", "reasoning_effort", "continue_final_message"}) {
      const char* limit = std::string(name) == "max_completion_tokens" ? "" : R"("max_tokens":2,)";
      check("/v1/chat/completions",
            fmt::format(R"({{{}"messages":[{{"role":"user","content":"x"}}],"{}":{}}})", limit, name, value));
    }
    check("/v1/completions", fmt::format(R"({{"max_tokens":2,"prompt":[{}]}})", value));
    check("/v1/completions", fmt::format(R"({{"max_tokens":2,"prompt":[[{}]]}})", value));
    check("/v1/completions", fmt::format(R"({{"max_tokens":2,"prompt":"a","logit_bias":{{"5":{}}}}})", value));
    check("/v1/completions", fmt::format(R"({{"max_tokens":2,"prompt":"a","stop_token_ids":[{}]}})", value));
    check("/detokenize", fmt::format(R"({{"tokens":[{}]}})", value));
    check("/tokenize", fmt::format(R"({{"content":{}}})", value));
  }
  EXPECT_GT(accepted, 100);
  EXPECT_GT(refused, 300);
}

}  // namespace
}  // namespace octavo::server
