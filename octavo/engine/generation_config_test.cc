#include "octavo/engine/generation_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "octavo/base/error.h"

namespace octavo::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(GenerationConfig, IsWhatTheModelSays) {
  const GenerationDefaults defaults = ParseGenerationConfig(
      R"({"temperature": 0.6, "top_p": 0.95, "top_k": 20, "repetition_penalty": 1.05, "max_new_tokens": 512,
          "eos_token_id": [151645, 151643], "do_sample": true, "transformers_version": "4.51"})",
      "x");
  EXPECT_TRUE(defaults.given);
  EXPECT_EQ(defaults.sampling.temperature, 0.6);
  EXPECT_EQ(defaults.sampling.top_p, 0.95);
  EXPECT_EQ(defaults.sampling.top_k, 20);
  EXPECT_EQ(defaults.sampling.repetition_penalty, 1.05);
  EXPECT_EQ(defaults.max_new_tokens, 512);
  EXPECT_THAT(defaults.end_ids, ElementsAre(151645, 151643));
  EXPECT_THAT(ParseGenerationConfig(R"({"eos_token_id": 2})", "x").end_ids, ElementsAre(2));
  EXPECT_EQ(ParseGenerationConfig(R"({"do_sample": false, "temperature": 0.6})", "x").sampling.temperature, 0);
  EXPECT_EQ(ParseGenerationConfig(R"({"temperature": null})", "x").sampling.temperature, 1);
  EXPECT_FALSE(ReadGenerationConfig("no-such-folder").given);
}

TEST(GenerationConfig, MalformedFilesAreNamed) {
  const auto refused = [](const char* json, const char* text) {
    try {
      ParseGenerationConfig(json, "generation_config.json");
      ADD_FAILURE() << json;
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), 5);
      EXPECT_THAT(error.what(), HasSubstr("generation_config.json"));
      EXPECT_THAT(error.what(), HasSubstr(text));
    }
  };
  refused("[]", "expected an object");
  refused("{", "");
  refused(R"({"temperature": -1})", "temperature: -1 is outside");
  refused(R"({"top_p": 1.5})", "top_p: 1.5 is outside");
  refused(R"({"top_k": -1})", "top_k");
  refused(R"({"top_k": "many"})", "top_k");
  refused(R"({"eos_token_id": [1, "x"]})", "eos_token_id");
  refused(R"({"eos_token_id": -5})", "eos_token_id");
  refused(R"({"repetition_penalty": 0})", "repetition_penalty");
}

}  // namespace
}  // namespace octavo::engine
