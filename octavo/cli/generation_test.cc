#include "octavo/cli/generation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>

#include "octavo/base/error.h"
#include "octavo/base/temp_folder.h"
#include "octavo/cli/verbs.h"
#include "octavo/engine/mock_service.h"
#include "octavo/text/tokenizer.h"

namespace octavo {
namespace {

using engine::Answer;
using engine::Answers;
using engine::Finish;
using engine::Sampling;
using ::testing::HasSubstr;

Answers Ended(std::initializer_list<Finish> ends) {
  Answers answers;
  for (const Finish finish : ends) {
    Answer answer;
    answer.finish = finish;
    if (finish == Finish::kError) answer.error = "it broke";
    answers.samples.push_back(answer);
  }
  return answers;
}

Args Parse(std::vector<std::string_view> words) {
  words.insert(words.begin(), "model");
  return Args::Parse(GenerateVerb(), words);
}

// The sampling of `words` over a greedy default.
Sampling Choose(const std::vector<std::string_view>& words, const engine::GenerationDefaults& defaults = {}) {
  const Args args = Parse(words);
  Sampling greedy;
  greedy.temperature = 0;
  return SamplingFrom(args, ReadGenerationWords(args).settings, defaults, greedy);
}

TEST(Generation, TheWorstEndOfSeveralSamplesIsTheEnd) {
  EXPECT_EQ(FinishOf(Ended({Finish::kStop, Finish::kStop})), Finish::kStop);
  EXPECT_EQ(FinishOf(Ended({Finish::kStop, Finish::kLength})), Finish::kLength);
  EXPECT_EQ(FinishOf(Ended({Finish::kLength, Finish::kCancelled, Finish::kStop})), Finish::kCancelled);
  EXPECT_EQ(FinishOf(Ended({Finish::kCancelled, Finish::kError})), Finish::kError);
}

TEST(Generation, AnySampleThatFailedIsAnError) {
  EXPECT_NO_THROW(ThrowIfFailed(Ended({Finish::kStop, Finish::kLength, Finish::kCancelled})));
  Answers answers = Ended({Finish::kStop, Finish::kError});
  answers.samples[1].error_code = "nan_logits";
  try {
    ThrowIfFailed(answers);
    FAIL() << "the second sample was not looked at";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNumbers);
    EXPECT_EQ(error.message(), "sample 1: it broke");
  }
  try {
    ThrowIfFailed(Ended({Finish::kError}));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kJob);
    EXPECT_EQ(error.message(), "it broke");
  }
}

TEST(Generation, AnInterruptAfterTheFirstSampleEndedIsSeen) {
  const auto tokenizer = text::MakeByteTokenizer();
  engine::MockOptions options;
  options.context_length = 1 << 30;
  options.step_seconds = 1e-4;
  options.answer = [](const engine::Request&, int sample) {
    return std::vector<int32_t>(sample == 0 ? 3 : 2'000'000, 'a');
  };
  engine::MockService service(*tokenizer, options);
  engine::Request request;
  request.prompt = {'h', 'i'};
  request.samples = 2;
  request.max_new_tokens = 2'000'000;
  const InterruptGuard guard;
  const Answers answers = Generate(service, request, [&](const engine::Event& event) {
    if (event.sample == 0 && event.finish && !InterruptGuard::Interrupted()) raise(SIGINT);
  });
  InterruptGuard::Clear();
  ASSERT_EQ(answers.samples.size(), 2u);
  EXPECT_EQ(answers.samples[0].finish, Finish::kStop);
  EXPECT_EQ(answers.samples[1].finish, Finish::kCancelled);
  EXPECT_EQ(FinishOf(answers), Finish::kCancelled);
}

TEST(Generation, FiltersAloneMeanDraws) {
  EXPECT_EQ(Choose({}).temperature, 0);
  EXPECT_EQ(Choose({"seed=1"}).temperature, 0);
  EXPECT_EQ(Choose({"repetition_penalty=1.2"}).temperature, 0);
  for (const std::string_view filter : {"top_p=0.9", "top_k=5", "min_p=0.1"}) {
    EXPECT_EQ(Choose({filter}).temperature, 1) << filter;
    EXPECT_EQ(Choose({filter, "temperature=0.5"}).temperature, 0.5) << filter;
    EXPECT_EQ(Choose({filter, "temperature=0"}).temperature, 0) << filter;
    EXPECT_EQ(Choose({filter, "decode_sampling_strategy=greedy"}).temperature, 0) << filter;
    engine::GenerationDefaults defaults;
    defaults.given = true;
    defaults.sampling.temperature = 0;
    EXPECT_EQ(Choose({filter}, defaults).temperature, 0) << filter;
    defaults.sampling.temperature = 0.6;
    EXPECT_EQ(Choose({filter}, defaults).temperature, 0.6) << filter;
  }
}

TEST(Generation, FiltersThatDoNothingAreNamed) {
  const auto note = [](const std::vector<std::string_view>& words, const engine::GenerationDefaults& defaults = {}) {
    return IdleSamplingNote(Parse(words), Choose(words, defaults));
  };
  EXPECT_EQ(note({}), "");
  EXPECT_EQ(note({"top_p=0.9"}), "");
  EXPECT_EQ(note({"temperature=0"}), "");
  EXPECT_EQ(note({"temperature=0", "top_p=0.9", "top_k=3"}),
            "temperature is 0, the most likely token is always taken: no effect of top_k, top_p");
}

// The config that a run saves holds every key: what stands there by default was not asked for.
TEST(Generation, ASavedConfigAsksForNothingByItself) {
  const TempFolder folder;
  const std::string path = (folder / "config.yml").string();
  std::ofstream(path) << Settings::Load({}).EffectiveYaml();
  Sampling usual;
  usual.temperature = 0.7;
  const Args saved = Args::Parse(GenerateVerb(), std::vector<std::string_view>{path, "model"});
  EXPECT_EQ(SamplingFrom(saved, ReadGenerationWords(saved).settings, {}, usual).temperature, 0.7);
  const Args asked =
      Args::Parse(GenerateVerb(), std::vector<std::string_view>{path, "model", "decode_sampling_strategy=weighted",
                                                                "decode_sampling_temperature=0.4"});
  EXPECT_EQ(SamplingFrom(asked, ReadGenerationWords(asked).settings, {}, usual).temperature, 0.4);
}

TEST(Generation, ATerminalGetsNoControlCharacters) {
  EXPECT_EQ(ForTerminal("a\tb\n\u65e5\u00a0\U0001F600~"), "a\tb\n\u65e5\u00a0\U0001F600~");
  EXPECT_EQ(ForTerminal("\x1b[2J\r\x07\x7f"), "\uFFFD[2J\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(ForTerminal("\u009b2J\u0080"), "\uFFFD2J\uFFFD");
  EXPECT_EQ(ForTerminal(std::string_view("\0", 1)), "\uFFFD");
}

TEST(Generation, TextOfAnEventIsOneLine) {
  engine::Event event;
  event.sample = 1;
  event.text = "a\nb";
  event.tokens = {7, 8};
  EXPECT_EQ(TextEventLine(event), "{\"event\":\"text\",\"sample\":1,\"text\":\"a\\nb\",\"tokens\":[7,8]}\n");
  event.text.clear();
  EXPECT_EQ(TextEventLine(event), "");
}

}  // namespace
}  // namespace octavo
