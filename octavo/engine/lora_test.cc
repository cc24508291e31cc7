// Adapters in mixed batches: each row has the bits it has alone, base rows those of the bare model, and the whole is a
// merged weight within rounding.
#include "octavo/quant/lora.h"

#include <gtest/gtest.h>

#include "octavo/base/error.h"
#include "octavo/engine/model_runner.h"
#include "octavo/engine/pack_weights.h"
#include "octavo/models/test_models.h"
#include "octavo/ops/dot.h"
#include "octavo/quant/recipe.h"
#include "octavo/weights/load_model.h"

namespace octavo::engine {
namespace {

using quant::LoraAdapter;
using quant::LoraFactors;
using quant::LoraProvider;

// Factors for every projection of the second layer's attention and MLP, and for the head.
std::shared_ptr<const LoraAdapter> RandomAdapter(const models::Model& model, uint32_t seed, int64_t rank) {
  auto adapter = std::make_shared<LoraAdapter>();
  adapter->name = "random";
  for (const ops::Parameter* parameter : model.parameters()) {
    const std::string& name = parameter->name;
    const bool target = name.ends_with("/kernel") &&
                        (name.find("layers_1") != std::string::npos || name.find("logits") != std::string::npos);
    if (!target) continue;
    const Shape shape = parameter->shape();
    const int64_t in = name.find("/out/") != std::string::npos ? shape[0] * shape[1] : shape[0];
    LoraFactors factors;
    factors.a = {name + "/a", ops::RandomTensor({in, rank}, ++seed)};
    factors.b = {name + "/b", ops::RandomTensor({rank, shape.size() / in}, ++seed)};
    factors.scale = 0.5f;
    adapter->factors[name] = std::move(factors);
  }
  return adapter;
}

struct Subject {
  explicit Subject(int threads = 2) : bench(threads) {
    models::ModelConfig config = models::TinyLlama();
    config.max_target_length = 128;
    model = models::MakeModel(config);
    models::Initialize(*model, RngKey::FromSeed(5), bench.pool);
  }
  std::unique_ptr<Runner> MakeWith(ops::Interceptor* interceptor) {
    return MakeRunner({*model, interceptor, nullptr, bench.pool, bench.context.isa}, {});
  }
  ops::TestBench bench;
  std::unique_ptr<models::Model> model;
};

std::vector<int32_t> Tokens(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % 61);
  return tokens;
}

Tensor LogitsAlone(Runner& runner, const std::vector<int32_t>& tokens, int adapter) {
  const SequenceId id = runner.Open(tokens, adapter, "", nullptr);
  const Work work{id, tokens, true};
  Tensor logits = runner.Step({&work, 1});
  runner.Close(id);
  return logits;
}

// Three sequences with different adapters, in chunks of different sizes in common steps.
void ExpectMixedEqualsAlone(LoraProvider& lora, Subject& subject, int first, int second) {
  const auto runner = MakeRunner({*subject.model, &lora, nullptr, subject.bench.pool, subject.bench.context.isa},
                                 {.prefix_cache = false});
  const int adapters[] = {0, first, second, first};
  std::vector<std::vector<int32_t>> tokens;
  std::vector<Tensor> alone;
  std::vector<SequenceId> ids;
  for (uint32_t i = 0; i < 4; ++i) {
    tokens.push_back(Tokens(8 + i, i));
    alone.push_back(LogitsAlone(*runner, tokens[i], adapters[i]));
  }
  EXPECT_FALSE(BitEqual(alone[1].Slice(0, 0, 1), LogitsAlone(*runner, tokens[1], 0).Slice(0, 0, 1)));
  for (uint32_t i = 0; i < 4; ++i) ids.push_back(runner->Open(tokens[i], adapters[i], "", nullptr));
  for (int64_t at = 0; at < 8;) {
    std::vector<Work> work;
    const int64_t count = std::min<int64_t>(at % 2 == 0 ? 1 : 4, 8 - at);
    for (size_t i = 0; i < 4; ++i) work.push_back({ids[i], {tokens[i].data() + at, static_cast<size_t>(count)}, true});
    const Tensor logits = runner->Step(work);
    for (int64_t i = 0; i < 4; ++i) {
      ASSERT_TRUE(
          BitEqual(logits.Slice(0, i * count, (i + 1) * count), alone[static_cast<size_t>(i)].Slice(0, at, at + count)))
          << "sequence " << i << " at " << at;
    }
    at += count;
  }
}

TEST(Lora, MixedBatchesInFloat) {
  for (const int threads : {1, 2, 3, 7}) {
    Subject subject(threads);
    LoraProvider lora;
    const auto one = RandomAdapter(*subject.model, 1, 3), two = RandomAdapter(*subject.model, 100, 5);
    const int first = lora.Add(one), second = lora.Add(two);
    ExpectMixedEqualsAlone(lora, subject, first, second);
  }
}

TEST(Lora, BaseRowsAreThoseOfTheBareModel) {
  Subject subject;
  LoraProvider lora;
  const auto adapter = RandomAdapter(*subject.model, 1, 3);
  const int number = lora.Add(adapter);
  const auto tokens = Tokens(30, 9);
  const Tensor with = LogitsAlone(*subject.MakeWith(&lora), tokens, 0);
  EXPECT_TRUE(BitEqual(with, LogitsAlone(*subject.MakeWith(nullptr), tokens, 0)));
  EXPECT_FALSE(BitEqual(with, LogitsAlone(*subject.MakeWith(&lora), tokens, number)));
}

// A model in codes, packed for serving: what adapters are added to most.
struct QuantizedSubject : Subject {
  QuantizedSubject(const char* recipe, int threads) : Subject(threads), floats(models::MakeModel(model->config())) {
    const quant::RuleSet rules(quant::RulesOf(quant::FindRecipe(recipe, true), {}));
    const auto meta = models::MakeModel(model->config());
    plan = weights::ForwardPlan(*meta, rules);
    const auto sites = weights::FrozenParameters(*meta, plan);
    for (ops::Parameter* parameter : model->parameters()) {
      floats->parameter_set().Find(parameter->name)->value = parameter->tensor();
      const auto site = sites.find(parameter->name);
      if (site == sites.end()) continue;
      parameter->value = weights::FreezeFor(*site->second, parameter->tensor(), {}, bench.pool, bench.context.isa);
      ++frozen;
    }
    provider.emplace(plan);
    PackWeights({*model, &*provider, nullptr, bench.pool, bench.context.isa}, *provider);
  }

  // The trainer's forward pass over float weights under the same rules, with the adapter for every row.
  Tensor Trained(const std::vector<int32_t>& tokens, const std::shared_ptr<const LoraAdapter>& adapter) {
    quant::Provider trainer(plan);
    LoraProvider lora(&trainer);
    lora.UseForAll(lora.Add(adapter));
    bench.context.interceptor = &lora;
    const auto length = static_cast<int64_t>(tokens.size());
    const ops::Var hidden =
        models::Forward(bench.context, *floats, ops::IntTensor({1, length}, tokens), ops::RowsOfShape(1, length));
    const Tensor logits = floats->Logits(bench.context, hidden).value.Reshape({length, floats->config().vocab_size});
    bench.context.interceptor = nullptr;
    return logits;
  }

  std::unique_ptr<models::Model> floats;
  quant::Plan plan;
  std::optional<quant::Provider> provider;
  int frozen = 0;
};

TEST(Lora, MixedBatchesOverAQuantizedBase) {
  for (const char* recipe : {"int8", "int4"}) {
    for (const int threads : {1, 3}) {
      SCOPED_TRACE(fmt::format("{} with {} threads", recipe, threads));
      QuantizedSubject subject(recipe, threads);
      ASSERT_GT(subject.frozen, 0);
      const auto tokens = Tokens(30, 9);
      const Tensor bare = LogitsAlone(*subject.MakeWith(&*subject.provider), tokens, 0);
      LoraProvider lora(&*subject.provider);
      const auto one = RandomAdapter(*subject.floats, 1, 3), two = RandomAdapter(*subject.floats, 100, 5);
      const int first = lora.Add(one), second = lora.Add(two);
      ExpectMixedEqualsAlone(lora, subject, first, second);
      // The base is what it was, before and after; an adapted row is the trainer's.
      EXPECT_TRUE(BitEqual(LogitsAlone(*subject.MakeWith(&lora), tokens, 0), bare));
      EXPECT_TRUE(BitEqual(LogitsAlone(*subject.MakeWith(&lora), tokens, second), subject.Trained(tokens, two)));
      EXPECT_TRUE(BitEqual(LogitsAlone(*subject.MakeWith(&*subject.provider), tokens, 0), bare));
    }
  }
}

TEST(Lora, IsTheMergedWeightWithinRounding) {
  Subject subject;
  LoraProvider lora;
  const auto adapter = RandomAdapter(*subject.model, 1, 3);
  const int number = lora.Add(adapter);
  const auto tokens = Tokens(30, 9);
  const std::vector<float> unmerged = LogitsAlone(*subject.MakeWith(&lora), tokens, number).ToVector<float>();
  for (ops::Parameter* parameter : subject.model->parameters()) {
    const auto at = adapter->factors.find(parameter->name);
    if (at == adapter->factors.end()) continue;
    const Tensor &a = at->second.a.tensor(), &b = at->second.b.tensor();
    std::vector<float> merged = parameter->tensor().ToVector<float>();
    for (int64_t i = 0; i < a.dim(0); ++i) {
      for (int64_t j = 0; j < b.dim(1); ++j) {
        double sum = 0;
        for (int64_t k = 0; k < a.dim(1); ++k) {
          sum += static_cast<double>(a.Data<float>()[i * a.dim(1) + k]) *
                 static_cast<double>(b.Data<float>()[k * b.dim(1) + j]);
        }
        merged[static_cast<size_t>(i * b.dim(1) + j)] += static_cast<float>(0.5 * sum);
      }
    }
    parameter->value = Tensor::FromValues(parameter->shape(), DType::kF32, merged);
  }
  const std::vector<float> whole = LogitsAlone(*subject.MakeWith(nullptr), tokens, 0).ToVector<float>();
  double largest = 0, size = 0;
  for (size_t i = 0; i < whole.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(whole[i] - unmerged[i])));
    size = std::max(size, std::abs(static_cast<double>(whole[i])));
  }
  EXPECT_GT(size, 0.5);
  EXPECT_LT(largest, 1e-5 * size);
}

TEST(Lora, GradientsOfTheFactors) {
  // One product y = x W + s x A B, loss = sum(c y): dA = s xᵀ c Bᵀ, dB = s Aᵀ xᵀ c, dx = c (W + s A B)ᵀ.
  ops::TestBench bench;
  const ops::Parameter weight{"w/kernel", ops::RandomTensor({4, 3}, 1)};
  auto adapter = std::make_shared<LoraAdapter>();
  adapter->factors["w/kernel"] = {{"a", ops::RandomTensor({4, 2}, 2)}, {"b", ops::RandomTensor({2, 3}, 3)}, 0.25f};
  LoraProvider lora;
  lora.UseForAll(lora.Add(adapter));
  ops::Tape tape;
  bench.context.tape = &tape;
  bench.context.interceptor = &lora;
  const ops::Var x = tape.Leaf(ops::RandomTensor({5, 4}, 4));
  const ops::Var y = ops::Project(bench.context, x, weight);
  const Tensor c = ops::RandomTensor({5, 3}, 5);
  tape.Run(bench.context, y, c);
  const auto at = [](const Tensor& t, int64_t i, int64_t j) {
    return static_cast<double>(t.Data<float>()[i * t.dim(1) + j]);
  };
  const LoraFactors& factors = adapter->factors.at("w/kernel");
  const Tensor &a = factors.a.tensor(), &b = factors.b.tensor();
  for (int64_t k = 0; k < 4; ++k) {
    for (int64_t r = 0; r < 2; ++r) {
      double expected = 0;
      for (int64_t m = 0; m < 5; ++m) {
        for (int64_t n = 0; n < 3; ++n) expected += 0.25 * at(x.value, m, k) * at(c, m, n) * at(b, r, n);
      }
      EXPECT_NEAR(at(tape.Grad(factors.a), k, r), expected, 1e-5);
    }
  }
  for (int64_t r = 0; r < 2; ++r) {
    for (int64_t n = 0; n < 3; ++n) {
      double expected = 0;
      for (int64_t m = 0; m < 5; ++m) {
        for (int64_t k = 0; k < 4; ++k) expected += 0.25 * at(a, k, r) * at(x.value, m, k) * at(c, m, n);
      }
      EXPECT_NEAR(at(tape.Grad(factors.b), r, n), expected, 1e-5);
    }
  }
  double expected = 0;
  for (int64_t n = 0; n < 3; ++n) {
    double whole = at(weight.tensor(), 1, n);
    for (int64_t r = 0; r < 2; ++r) whole += 0.25 * at(a, 1, r) * at(b, r, n);
    expected += at(c, 2, n) * whole;
  }
  EXPECT_NEAR(at(tape.Grad(x), 2, 1), expected, 1e-5);
}

TEST(Lora, UnloadedAdaptersAreErrorsNotFloats) {
  Subject subject;
  LoraProvider lora;
  auto adapter = RandomAdapter(*subject.model, 1, 3);
  const int number = lora.Add(adapter);
  adapter.reset();
  EXPECT_THROW(LogitsAlone(*subject.MakeWith(&lora), Tokens(5, 1), number), Error);
}

}  // namespace
}  // namespace octavo::engine
