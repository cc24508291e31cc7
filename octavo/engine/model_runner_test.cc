// Prefill in any pieces plus steps gives, at every position, the bits of one full forward pass: for every family of the
// product, whatever else is in the batch, with shared pages, forks and recomputation.
#include "octavo/engine/model_runner.h"

#include <gtest/gtest.h>

#include "octavo/base/error.h"
#include "octavo/engine/engine_test_support.h"

namespace octavo::engine {
namespace {

using models::ModelConfig;

// Those of the product, and other forms of their parts: windows, experts as one dense product, DeepSeek V2.
std::vector<ModelConfig> Families() {
  std::vector<ModelConfig> families = TinyFamilies();
  ModelConfig windowed = models::TinyLlama();
  windowed.attention_type = "local_sliding";
  windowed.sliding_window_size = 70;
  for (const ModelConfig& form : {windowed, models::TinyMixtral(false), models::TinyDeepSeek(false)}) {
    families.push_back(form);
  }
  return families;
}

struct Subject {
  explicit Subject(ModelConfig config, int threads = 2, int64_t context = 400) : bench(threads) {
    config.max_target_length = context;
    model = models::MakeModel(config);
    models::Initialize(*model, RngKey::FromSeed(5), bench.pool);
  }
  RunnerParts parts() { return {*model, nullptr, nullptr, bench.pool, bench.context.isa}; }
  // Logits [T, V] of the trainer's forward pass.
  Tensor Full(const std::vector<int32_t>& tokens) {
    const auto length = static_cast<int64_t>(tokens.size());
    const Tensor in = ops::IntTensor({1, length}, tokens);
    const ops::Var hidden = models::Forward(bench.context, *model, in, ops::RowsOfShape(1, length));
    return model->Logits(bench.context, hidden).value.Reshape({length, model->config().vocab_size});
  }
  ops::TestBench bench;
  std::unique_ptr<models::Model> model;
};

TEST(ModelRunner, EveryPositionOfEveryFamily) {
  for (const ModelConfig& config : Families()) {
    SCOPED_TRACE(config.decoder_block);
    Subject subject(config, 1);
    const std::vector<int32_t> tokens = RandomTokens(90, config.vocab_size, 3);
    const Tensor full = subject.Full(tokens);
    const auto runner = MakeRunner(subject.parts(), {.prefix_cache = false});
    for (int64_t chunk : {1, 7, 64, 90}) {
      const SequenceId id = runner->Open(tokens, 0, "", nullptr);
      ExpectRows(*runner, id, tokens, chunk, full);
      runner->Close(id);
    }
    EXPECT_EQ(runner->free_pages(), runner->pages());
  }
}

// Behind the first super-block of attention (1024 tokens) and over its edge: whole, in pieces that do not divide it,
// and one by one.
TEST(ModelRunner, ContextsLongerThanASuperBlock) {
  for (const ModelConfig& config : {models::TinyLlama(), models::TinyDeepSeek(), models::TinyGemma2()}) {
    SCOPED_TRACE(config.decoder_block);
    Subject subject(config, 2, 1100);
    const std::vector<int32_t> tokens = RandomTokens(1090, config.vocab_size, 3);
    const Tensor full = subject.Full(tokens);
    const auto runner = MakeRunner(subject.parts(), {.prefix_cache = false});
    for (int64_t chunk : {7, 64, 1000, 1090}) {
      const SequenceId id = runner->Open(tokens, 0, "", nullptr);
      ExpectRows(*runner, id, tokens, chunk, full);
      runner->Close(id);
    }
    const SequenceId id = runner->Open(tokens, 0, "", nullptr);
    ExpectRows(*runner, id, std::span(tokens).first(1000), 1000, full);
    ExpectRows(*runner, id, tokens, 1, full);
  }
}

// Decoding sequences and prompt chunks in one step; each has the bits it has alone, on 1 … 7 threads.
TEST(ModelRunner, MixedBatches) {
  for (const ModelConfig& config : {models::TinyLlama(), models::TinyMixtral(), models::TinyDeepSeek()}) {
    for (int threads : config.decoder_block == "llama2" ? std::vector{1, 2, 3, 7} : std::vector{3}) {
      Subject subject(config, threads);
      const auto runner = MakeRunner(subject.parts(), {});
      std::vector<std::vector<int32_t>> tokens;
      std::vector<Tensor> full;
      std::vector<SequenceId> ids;
      for (uint32_t i = 0; i < 5; ++i) {
        tokens.push_back(RandomTokens(30 + 25 * i, config.vocab_size, i));
        full.push_back(subject.Full(tokens.back()));
        ids.push_back(runner->Open(tokens.back(), 0, "", nullptr));
      }
      const int64_t pieces[] = {1, 3, 30, 64, 200};
      for (bool more = true; more;) {
        more = false;
        std::vector<Work> work;
        std::vector<std::pair<size_t, int64_t>> rows;
        for (size_t i = 0; i < ids.size(); ++i) {
          const int64_t at = runner->length(ids[i]), left = static_cast<int64_t>(tokens[i].size()) - at;
          const int64_t count = std::min(left, pieces[i]);
          if (count == 0) continue;
          more = true;
          work.push_back({ids[i], {tokens[i].data() + at, static_cast<size_t>(count)}, false, i != 3});
          if (i != 3) rows.emplace_back(i, at + count - 1);
        }
        const Tensor logits = runner->Step(work);
        ASSERT_EQ(logits.dim(0), static_cast<int64_t>(rows.size()));
        for (size_t r = 0; r < rows.size(); ++r) {
          const auto row = static_cast<int64_t>(r);
          const int64_t position = rows[r].second;
          ASSERT_TRUE(BitEqual(logits.Slice(0, row, row + 1), full[rows[r].first].Slice(0, position, position + 1)))
              << config.decoder_block << " " << threads << " sequence " << rows[r].first << " at " << position;
        }
      }
    }
  }
}

TEST(ModelRunner, PrefixesAreSharedByContent) {
  Subject subject(models::TinyLlama());
  const auto runner = MakeRunner(subject.parts(), {});
  const std::vector<int32_t> tokens = RandomTokens(200, 61, 1);
  const Tensor full = subject.Full(tokens);
  int64_t cached = -1;
  const SequenceId first = runner->Open(tokens, 0, "a", &cached);
  EXPECT_EQ(cached, 0);
  ExpectRows(*runner, first, tokens, 64, full);
  const SequenceId second = runner->Open(tokens, 0, "a", &cached);
  EXPECT_EQ(cached, 192);
  EXPECT_EQ(runner->PagesFor(second, 8), 1);
  ExpectRows(*runner, second, tokens, 3, full);
  runner->Close(first);
  runner->Close(second);
  EXPECT_EQ(runner->free_pages(), runner->pages());
  // Not to another scope or adapter, and never the whole prompt.
  runner->Open(tokens, 0, "b", &cached);
  EXPECT_EQ(cached, 0);
  runner->Open(tokens, 1, "a", &cached);
  EXPECT_EQ(cached, 0);
  const std::vector<int32_t> whole(tokens.begin(), tokens.begin() + 128);
  runner->Open(whole, 0, "a", &cached);
  EXPECT_EQ(cached, 64);
  // A difference in the first page hides all behind it.
  std::vector<int32_t> other = tokens;
  other[5] = (other[5] + 1) % 61;
  const SequenceId third = runner->Open(other, 0, "a", &cached);
  EXPECT_EQ(cached, 0);
  ExpectRows(*runner, third, other, 200, subject.Full(other));
}

TEST(ModelRunner, ForksCopyTheLastPageOnly) {
  Subject subject(models::TinyLlama());
  const auto runner = MakeRunner(subject.parts(), {.context_length = 128, .sequences = 2});
  const std::vector<int32_t> prompt = RandomTokens(70, 61, 1);
  const SequenceId first = runner->Open(prompt, 0, "", nullptr);
  std::vector<int32_t> a = prompt, b = prompt;
  for (int32_t token : RandomTokens(20, 61, 8)) a.push_back(token);
  for (int32_t token : RandomTokens(20, 61, 9)) b.push_back(token);
  const Tensor full_a = subject.Full(a), full_b = subject.Full(b);
  ExpectRows(*runner, first, prompt, 70, full_a.Slice(0, 0, 70));
  const SequenceId second = runner->Fork(first);
  EXPECT_EQ(runner->free_pages(), 2);
  EXPECT_EQ(runner->PagesFor(second, 1), 1);
  ExpectRows(*runner, first, a, 1, full_a);
  EXPECT_EQ(runner->free_pages(), 1);
  EXPECT_EQ(runner->PagesFor(second, 1), 0);
  ExpectRows(*runner, second, b, 4, full_b);
  EXPECT_EQ(runner->free_pages(), 1);
}

// A pool too small for two: the second sequence takes the first one's pages, which then recomputes the same bits.
TEST(ModelRunner, PreemptionRecomputesTheSameBits) {
  Subject subject(models::TinyLlama());
  const auto runner = MakeRunner(subject.parts(), {.context_length = 192, .sequences = 1});
  const std::vector<int32_t> one = RandomTokens(150, 61, 1), two = RandomTokens(180, 61, 2);
  const Tensor full_one = subject.Full(one), full_two = subject.Full(two);
  SequenceId first = runner->Open(one, 0, "", nullptr);
  const std::vector<int32_t> part(one.begin(), one.begin() + 140);
  ExpectRows(*runner, first, part, 50, full_one.Slice(0, 0, 140));
  runner->Close(first);
  const SequenceId second = runner->Open(two, 0, "", nullptr);
  ExpectRows(*runner, second, two, 64, full_two);
  runner->Close(second);
  int64_t cached = -1;
  first = runner->Open(one, 0, "", &cached);
  EXPECT_EQ(cached, 0);
  ExpectRows(*runner, first, one, 64, full_one);
}

TEST(ModelRunner, WrongWorkChangesNothing) {
  Subject subject(models::TinyLlama());
  const auto runner = MakeRunner(subject.parts(), {.context_length = 100, .sequences = 1});
  const std::vector<int32_t> tokens = RandomTokens(100, 61, 1), wrong = {3, 61};
  const SequenceId id = runner->Open(tokens, 0, "", nullptr), other = runner->Open(tokens, 0, "x", nullptr);
  const auto step = [&](std::vector<Work> work) { return runner->Step(work); };
  EXPECT_THROW(step({{id, wrong}}), Error);
  EXPECT_THROW(step({{id, tokens}, {id, tokens}}), Error);
  EXPECT_THROW(step({{id, {}}}), Error);
  EXPECT_THROW(step({{id + 7, tokens}}), Error);
  EXPECT_THROW(step({{id, tokens}, {other, tokens}}), Error);  // four pages, there are two
  EXPECT_EQ(runner->length(id), 0);
  EXPECT_EQ(runner->free_pages(), 2);
  EXPECT_EQ(step({{id, tokens}}).dim(0), 1);
  EXPECT_THROW(step({{id, {tokens.data(), 1}}}), Error);  // past the context
  EXPECT_EQ(step({}).dim(0), 0);
  EXPECT_THROW(MakeRunner(subject.parts(), {.kv_bytes = 100}), Error);
}

}  // namespace
}  // namespace octavo::engine
