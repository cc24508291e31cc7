// Adapters by name over a real engine: loaded and unloaded while requests run, each answer that of its adapter alone,
// the base model what it was.
#include "octavo/engine/adapters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "octavo/base/temp_folder.h"
#include "octavo/engine/collector.h"
#include "octavo/engine/model_runner.h"
#include "octavo/engine/validate.h"
#include "octavo/models/test_models.h"
#include "octavo/weights/test_adapters.h"

namespace octavo::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const text::Tokenizer& Bytes() {
  static const auto tokenizer = text::MakeByteTokenizer();
  return *tokenizer;
}

models::ModelConfig Served(models::ModelConfig config = models::TinyLlama()) {
  config.vocab_size = 258;
  config.max_target_length = 256;
  return config;
}

// A model, two adapter folders, and what serves them.
struct Subject {
  explicit Subject(const models::ModelConfig& config = Served()) : model(models::MakeModel(config)) {
    models::Initialize(*model, RngKey::FromSeed(5), bench.pool);
    weights::WriteRandomAdapter(folder / "poet", config, 1);
    weights::WriteRandomAdapter(folder / "coder", config, 100);
    runner = MakeRunner({*model, &lora, nullptr, bench.pool, bench.context.isa}, {});
  }
  std::unique_ptr<Scheduler> Start() {
    SchedulerOptions options;
    options.model.id = "base";
    options.batch.slots = 8;
    options.batch.step_tokens = 32;
    options.batch.isa = bench.context.isa;
    return std::make_unique<Scheduler>(*runner, Bytes(), std::move(options), &adapters);
  }
  // Logits of every position, with the adapter of a number.
  Tensor Logits(const std::vector<int32_t>& tokens, int adapter) {
    const SequenceId id = runner->Open(tokens, adapter, "", nullptr);
    const Work work{id, tokens, true};
    Tensor logits = runner->Step({&work, 1});
    runner->Close(id);
    return logits;
  }

  TempFolder folder;
  ops::TestBench bench{2};
  std::unique_ptr<models::Model> model;
  quant::LoraProvider lora;
  Adapters adapters{*model, lora};
  std::unique_ptr<Runner> runner;
};

Request Ask(const std::string& adapter, const std::string& prompt = "some words", int64_t tokens = 20) {
  Request request;
  request.prompt = Bytes().Encode(prompt);
  request.max_new_tokens = tokens;
  request.sampling.temperature = 0;
  request.top_logprobs = 0;
  request.adapter = adapter;
  return request;
}

struct Bits {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  bool operator==(const Bits&) const = default;
};

Bits BitsOf(const Answers& answers) {
  Bits bits{answers.samples.at(0).tokens, {}};
  for (const TokenLogprob& one : answers.samples[0].logprobs) bits.logprobs.push_back(one.logprob);
  EXPECT_EQ(answers.samples[0].error, "");
  EXPECT_FALSE(bits.tokens.empty());
  return bits;
}

Answers RunOne(Scheduler& scheduler, const Request& request) {
  const Collector collector;
  scheduler.Submit(request, collector.listener());
  return collector.Wait();
}

TEST(Adapters, TwoAndTheBaseInOneBatch) {
  Subject subject;
  subject.adapters.Load("poet", subject.folder / "poet");
  subject.adapters.Load("coder", subject.folder / "coder");
  EXPECT_THAT(subject.adapters.Names(), ElementsAre("coder", "poet"));
  const auto scheduler = subject.Start();
  const auto models = scheduler->Models();
  ASSERT_EQ(models.size(), 3u);
  EXPECT_EQ(models[0].parent, "");
  EXPECT_EQ(models[1].id, "coder");
  EXPECT_EQ(models[1].parent, "base");
  const std::string names[] = {"", "poet", "coder"};
  std::vector<Bits> alone;
  for (const std::string& name : names) alone.push_back(BitsOf(RunOne(*scheduler, Ask(name))));
  EXPECT_NE(alone[0].tokens, alone[1].tokens);
  EXPECT_NE(alone[0].tokens, alone[2].tokens);
  EXPECT_NE(alone[1].tokens, alone[2].tokens);
  scheduler->Pause();
  std::vector<Collector> collectors(6);
  for (size_t i = 0; i < 6; ++i) scheduler->Submit(Ask(names[i % 3]), collectors[i].listener());
  scheduler->Resume();
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(BitsOf(collectors[i].Wait()), alone[i % 3]) << i;
}

TEST(Adapters, NamesAndWhatIsRefused) {
  Subject subject;
  Adapters& adapters = subject.adapters;
  const auto refused = [&](const std::string& name, const std::filesystem::path& folder, const char* text) {
    try {
      adapters.Load(name, folder);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(text));
    }
  };
  adapters.Reserve("base");
  adapters.Load("poet", subject.folder / "poet");
  EXPECT_GT(adapters.bytes(), 0);
  EXPECT_THROW(adapters.Load("poet", subject.folder / "coder"), NameTaken);
  refused("poet", subject.folder / "coder", "an adapter 'poet' is loaded already");
  EXPECT_THROW(adapters.Load("base", subject.folder / "coder"), NameTaken);
  refused("base", subject.folder / "coder", "an adapter cannot be called 'base': requests of that name mean the model");
  refused("", subject.folder / "coder", "an adapter needs a name");
  refused(std::string(257, 'x'), subject.folder / "coder", "an adapter's name has 257 bytes, at most 256");
  refused("two\nlines", subject.folder / "coder", "an adapter's name holds a control character");
  refused("other", subject.folder / "nothing", "no adapter_model.safetensors in ");
  std::ofstream(subject.folder / "coder/adapter_config.json") << R"({"peft_type":"LORA","r":3,"lora_alpha":6,
    "use_dora":true})";
  refused("coder", subject.folder / "coder", "use_dora=true is not supported");
  EXPECT_THAT(adapters.Names(), ElementsAre("poet"));
  EXPECT_THROW(adapters.Reserve("poet"), NameTaken);
  EXPECT_FALSE(adapters.Unload("coder"));
  EXPECT_TRUE(adapters.Unload("poet"));
  EXPECT_FALSE(adapters.Unload("poet"));
  EXPECT_EQ(adapters.bytes(), 0);
  EXPECT_EQ(adapters.Find("poet").number, 0);
}

TEST(Adapters, ARequestFinishesWithWhatItBeganWith) {
  Subject subject;
  subject.adapters.Load("poet", subject.folder / "poet");
  const std::weak_ptr<const void> weights = subject.adapters.Find("poet").keep;
  auto scheduler = subject.Start();
  const Bits alone = BitsOf(RunOne(*scheduler, Ask("poet")));
  const Collector collector;
  Listener listener = collector.listener();
  std::atomic<int> unloaded = 0;
  listener.on_event = [&, keep = listener.on_event](Event&& event) {
    if (subject.adapters.Unload("poet")) ++unloaded;  // with its first token
    EXPECT_FALSE(weights.expired());
    keep(std::move(event));
  };
  scheduler->Submit(Ask("poet"), listener);
  EXPECT_EQ(BitsOf(collector.Wait()), alone);
  EXPECT_EQ(unloaded, 1);
  try {
    scheduler->Submit(Ask("poet"), collector.listener());
    FAIL();
  } catch (const RequestError& error) {
    EXPECT_EQ(error.reason, "model_not_found");
  }
  scheduler.reset();
  EXPECT_TRUE(weights.expired());
}

// Another adapter under an old name: none of the pages that the old one filled are taken for its own.
TEST(Adapters, ANameThatIsLoadedAnewHasNoOldCache) {
  Subject subject;
  const std::string prompt(150, 'x');
  Bits coder;
  {
    subject.adapters.Load("poet", subject.folder / "coder");
    coder = BitsOf(RunOne(*subject.Start(), Ask("poet", prompt)));
    subject.adapters.Unload("poet");
  }
  subject.adapters.Load("poet", subject.folder / "poet");
  const auto scheduler = subject.Start();
  const Answers first = RunOne(*scheduler, Ask("poet", prompt)), again = RunOne(*scheduler, Ask("poet", prompt));
  EXPECT_EQ(first.usage.cached_tokens, 0);
  EXPECT_EQ(again.usage.cached_tokens, 128);
  EXPECT_EQ(BitsOf(first), BitsOf(again));
  EXPECT_NE(BitsOf(first), coder);
  EXPECT_TRUE(subject.adapters.Unload("poet"));
  subject.adapters.Load("poet", subject.folder / "coder");
  const Answers other = RunOne(*scheduler, Ask("poet", prompt));
  EXPECT_EQ(other.usage.cached_tokens, 0);
  EXPECT_EQ(BitsOf(other), coder);
  EXPECT_EQ(RunOne(*scheduler, Ask("", prompt)).usage.cached_tokens, 0);
}

TEST(Adapters, TheBaseIsWhatItWas) {
  Subject subject;
  std::vector<int32_t> tokens;  // less than a page: none of them is cached
  for (int32_t i = 0; i < 60; ++i) tokens.push_back(i * 37 % 256);
  const Tensor before = subject.Logits(tokens, 0);
  subject.adapters.Load("poet", subject.folder / "poet");
  const int number = subject.adapters.Find("poet").number;
  EXPECT_TRUE(BitEqual(subject.Logits(tokens, 0), before));
  EXPECT_FALSE(BitEqual(subject.Logits(tokens, number), before));
  EXPECT_TRUE(BitEqual(subject.Logits(tokens, 0), before));
  subject.adapters.Unload("poet");
  EXPECT_TRUE(BitEqual(subject.Logits(tokens, 0), before));
  EXPECT_THROW(subject.Logits(tokens, number), Error);
}

// Each of them begins in its own thread; answers do not change.
TEST(Adapters, LoadsAndUnloadsWhileRequestsRun) {
  Subject subject;
  subject.adapters.Load("poet", subject.folder / "poet");
  const auto scheduler = subject.Start();
  const Bits base = BitsOf(RunOne(*scheduler, Ask(""))), poet = BitsOf(RunOne(*scheduler, Ask("poet")));
  std::atomic<bool> done = false;
  int rounds = 0;
  std::thread loads([&] {
    do {
      subject.adapters.Load("coder", subject.folder / "coder");
      EXPECT_TRUE(subject.adapters.Unload("coder"));
      ++rounds;
    } while (!done);
  });
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(BitsOf(RunOne(*scheduler, Ask(""))), base);
    EXPECT_EQ(BitsOf(RunOne(*scheduler, Ask("poet"))), poet);
  }
  done = true;
  loads.join();
  EXPECT_GT(rounds, 0);
}

// What is taken at load works in a step: every projection of every family, beside a base row, with the trainer's bits.
TEST(Adapters, EveryProjectionOfEveryFamily) {
  for (const models::ModelConfig& tiny :
       {models::TinyLlama(), models::TinyGpt3(), models::TinyMixtral(), models::TinyMixtral(false),
        models::TinyDeepSeek(), models::TinyDeepSeek(false), models::TinyQwen3()}) {
    SCOPED_TRACE(tiny.decoder_block);
    Subject subject(Served(tiny));
    const auto tokens = std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7, 8, 9};
    const Tensor base = subject.Logits(tokens, 0);
    for (const weights::HfPiece& piece : weights::Projections(subject.model->config())) {
      const std::string module = piece.theirs[0].substr(0, piece.theirs[0].size() - 7);
      SCOPED_TRACE(module);
      weights::WriteRandomAdapter(subject.folder / "one", subject.model->config(), 7, module);
      subject.adapters.Load("one", subject.folder / "one");
      const AdapterUse one = subject.adapters.Find("one");
      const SequenceId first = subject.runner->Open(tokens, 0, "", nullptr),
                       second = subject.runner->Open(tokens, one.number, "", nullptr);
      const Work work[] = {{first, tokens, true}, {second, tokens, true}};
      const Tensor both = subject.runner->Step(work);
      EXPECT_TRUE(BitEqual(both.Slice(0, 0, 9), base));
      EXPECT_FALSE(BitEqual(both.Slice(0, 9, 18), base));
      subject.lora.UseForAll(one.number);
      subject.bench.context.interceptor = &subject.lora;
      const ops::Var hidden = models::Forward(subject.bench.context, *subject.model, ops::IntTensor({1, 9}, tokens),
                                              ops::RowsOfShape(1, 9));
      const Tensor trained = subject.model->Logits(subject.bench.context, hidden).value.Reshape({9, 258});
      EXPECT_TRUE(BitEqual(both.Slice(0, 9, 18), trained));
      subject.bench.context.interceptor = nullptr;
      subject.lora.UseForAll(0);
      subject.runner->Close(first);
      subject.runner->Close(second);
      subject.adapters.Unload("one");
    }
  }
}

}  // namespace
}  // namespace octavo::engine
