// The scheduler over real models in a cache that is too small: requests give their pages back and are computed again,
// samples of one prompt fork it, prompts share pages by content. Each request hears, bit for bit, what it hears alone
// with pages for all.
#include <gtest/gtest.h>

#include <bit>

#include "octavo/engine/collector.h"
#include "octavo/engine/engine_test_support.h"
#include "octavo/engine/scheduler.h"

namespace octavo::engine {
namespace {

constexpr int64_t kContext = 320, kPages = 8;

const text::Tokenizer& Bytes() {
  static const auto tokenizer = text::MakeByteTokenizer();
  return *tokenizer;
}

Request Ask(std::vector<int32_t> prompt, int64_t tokens, int samples, uint64_t seed) {
  Request request;
  request.prompt = std::move(prompt);
  request.max_new_tokens = tokens;
  request.samples = samples;
  request.sampling.seed = seed;
  request.ignore_eos = true;
  request.top_logprobs = 2;  // their bits show the logits'
  return request;
}

// One that decodes over two pages' ends, one with three samples that part in the middle of a page, two that begin alike
// and go on differently, and one that is nearly all prompt.
std::vector<Request> Requests() {
  const std::vector<int32_t> prefix = RandomTokens(130, 256, 1);
  std::vector<int32_t> other(prefix.begin(), prefix.begin() + 100);
  for (int32_t token : RandomTokens(20, 256, 2)) other.push_back(token);
  return {Ask(prefix, 100, 1, 11), Ask(RandomTokens(40, 256, 3), 120, 1, 12), Ask(RandomTokens(50, 256, 4), 30, 3, 13),
          Ask(other, 30, 2, 14),   Ask(RandomTokens(290, 256, 5), 10, 1, 15), Ask(RandomTokens(60, 256, 6), 90, 1, 16)};
}

void ExpectEqual(const Answers& found, const Answers& expected) {
  ASSERT_EQ(found.samples.size(), expected.samples.size());
  for (size_t s = 0; s < found.samples.size(); ++s) {
    SCOPED_TRACE("sample " + std::to_string(s));
    const Answer &x = found.samples[s], &y = expected.samples[s];
    EXPECT_EQ(x.finish, Finish::kLength) << x.error;
    EXPECT_EQ(x.tokens, y.tokens);
    ASSERT_EQ(x.logprobs.size(), y.logprobs.size());
    for (size_t i = 0; i < x.logprobs.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(x.logprobs[i].logprob), std::bit_cast<uint32_t>(y.logprobs[i].logprob))
          << "token " << i;
      ASSERT_EQ(x.logprobs[i].top, y.logprobs[i].top) << "token " << i;
    }
  }
}

struct Form {
  const char* name;
  models::ModelConfig config;
  RecipeCase recipe;
};

std::vector<Form> Forms() {
  const RecipeCase int8{"int8", true, ops::KvFormat{Format::kInt8, true}};
  const RecipeCase w4a8{"w4a8", false, ops::KvFormat{Format::kInt4, false}};
  return {{"Llama", models::TinyLlama(), {}},
          {"DeepSeek", models::TinyDeepSeek(), {}},
          {"LlamaInt8", models::TinyLlama(), int8},
          {"Qwen3MoeW4a8", TinyQwen3Moe(), w4a8}};
}

class SchedulerOfModels : public ::testing::TestWithParam<Form> {
 protected:
  SchedulerOfModels() : form_(GetParam()) {
    models::ModelConfig config = Wide(form_.config);
    config.vocab_size = 258;
    config.max_target_length = kContext;
    model_.emplace(config, form_.recipe, 2);
    model_->Pack();
  }

  std::unique_ptr<Runner> Make(int64_t pages, bool prefix_cache) {
    RunnerOptions options;
    options.context_length = kContext;
    options.kv = form_.recipe.kv.value_or(ops::KvFormat{});
    options.kv_bytes = pages * PageBytes(model_->model(), options.kv);
    options.prefix_cache = prefix_cache;
    return MakeRunner(model_->parts(), options);
  }

  SchedulerOptions Options(int64_t step_tokens) const {
    SchedulerOptions options;
    options.model.id = "tiny";
    options.end_ids = {257};
    options.batch.slots = 8;
    options.batch.step_tokens = step_tokens;
    options.batch.isa = model_->isa();
    return options;
  }

  Answers Alone(const Request& request) {
    const auto runner = Make(40, false);
    Scheduler scheduler(*runner, Bytes(), Options(256));
    Collector collector;
    scheduler.Submit(request, collector.listener());
    return collector.Wait();
  }

  Form form_;
  std::optional<QuantizedModel> model_;
};

TEST_P(SchedulerOfModels, FewPagesGiveTheBitsOfManyAndOfOneAlone) {
  const std::vector<Request> requests = Requests();
  std::vector<Answers> alone;
  for (const Request& request : requests) alone.push_back(Alone(request));
  for (int64_t step_tokens : {24, 256}) {
    SCOPED_TRACE(fmt::format("steps of {}", step_tokens));
    const auto runner = Make(kPages, true);
    ASSERT_EQ(runner->pages(), kPages);
    {
      Scheduler scheduler(*runner, Bytes(), Options(step_tokens));
      // The first one once before, so that its prompt is known when all come.
      Collector before;
      scheduler.Submit(requests[0], before.listener());
      ExpectEqual(before.Wait(), alone[0]);
      std::vector<Collector> collectors(requests.size());
      scheduler.Pause();
      for (size_t i = 0; i < requests.size(); ++i) scheduler.Submit(requests[i], collectors[i].listener());
      scheduler.Resume();
      for (size_t i = 0; i < requests.size(); ++i) {
        SCOPED_TRACE(fmt::format("request {}", i));
        ExpectEqual(collectors[i].Wait(), alone[i]);
      }
      EXPECT_EQ(collectors[0].Wait().usage.cached_tokens, 128);
      scheduler.Drain(60);
      const ServiceStats stats = scheduler.Stats();
      EXPECT_EQ(stats.finished, 7);
      EXPECT_GE(stats.preemptions, 1);
      EXPECT_GE(stats.prefix_hits, 128);
      EXPECT_EQ(stats.kv_pages_used, 0);
    }
    EXPECT_EQ(runner->free_pages(), kPages);
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, SchedulerOfModels, ::testing::ValuesIn(Forms()),
                         [](const auto& form) { return std::string(form.param.name); });

}  // namespace
}  // namespace octavo::engine
