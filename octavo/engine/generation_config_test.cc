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
  EXPECT_FALSE(ReadGenerationConfig("no-such-folder").given);
}

// What transformers writes beside every model that it saves: it says nothing about sampling.
TEST(GenerationConfig, IdsAndFlagsAreNoWordAboutSampling) {
  const GenerationDefaults saved = ParseGenerationConfig(R"({
  "_from_model_config": true,
  "bos_token_id": 1,
  "eos_token_id": 2,
  "output_attentions": false,
  "output_hidden_states": false,
  "transformers_version": "5.22.2",
  "use_cache": true
})",
                                                         "x");
  EXPECT_FALSE(saved.given);
  EXPECT_THAT(saved.end_ids, ElementsAre(2));
  const GenerationDefaults length = ParseGenerationConfig(R"({"max_new_tokens": 20})", "x");
  EXPECT_FALSE(length.given);
  EXPECT_EQ(length.max_new_tokens, 20);
  EXPECT_FALSE(ParseGenerationConfig("{}", "x").given);
  EXPECT_FALSE(ParseGenerationConfig(R"({"temperature": null, "do_sample": null, "top_k": null})", "x").given);
}

TEST(GenerationConfig, EachKeyOfSamplingIsAWord) {
  const auto temperature = [](const char* json) {
    const GenerationDefaults defaults = ParseGenerationConfig(json, "x");
    EXPECT_TRUE(defaults.given) << json;
    return defaults.sampling.temperature;
  };
  // Without do_sample: who says how to draw draws, a penalty alone leaves the most likely token.
  EXPECT_EQ(temperature(R"({"temperature": 0.6})"), 0.6);
  EXPECT_EQ(temperature(R"({"top_p": 0.9})"), 1);
  EXPECT_EQ(temperature(R"({"top_k": 20})"), 1);
  EXPECT_EQ(temperature(R"({"min_p": 0.1})"), 1);
  EXPECT_EQ(temperature(R"({"repetition_penalty": 1.1})"), 0);
  EXPECT_EQ(temperature(R"({"do_sample": null, "repetition_penalty": 1.1})"), 0);
  EXPECT_EQ(temperature(R"({"do_sample": true})"), 1);
  EXPECT_EQ(temperature(R"({"do_sample": true, "repetition_penalty": 1.1})"), 1);
  EXPECT_EQ(temperature(R"({"do_sample": false})"), 0);
  EXPECT_EQ(temperature(R"({"do_sample": false, "temperature": 0.6, "top_p": 0.9})"), 0);
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
  refused(R"({"do_sample": "yes"})", "do_sample");
}

}  // namespace
}  // namespace octavo::engine
