#include "octavo/quant/weight_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "octavo/base/error.h"
#include "octavo/quant/quant_test_support.h"
#include "octavo/quant/recipe.h"
#include "octavo/quant/test_model.h"

namespace octavo::quant {
namespace {

using ::testing::HasSubstr;

// Output and gradients of one pass.
std::vector<Tensor> Pass(ops::TestBench& machine, const TestModel& model, Provider& provider, uint64_t seed) {
  ops::Tape tape;
  machine.context.interceptor = &provider;
  machine.context.tape = &tape;
  const ops::Var x = tape.Leaf(RandomTensor({TestModel::kBatch, TestModel::kTokens, TestModel::kWidth}, seed, 0.15f));
  const ops::Var out = model.Run(machine.context, x);
  tape.Run(machine.context, out, RandomTensor(out.shape(), seed + 1));
  std::vector<Tensor> result = {out.value, tape.Grad(x), tape.Grad(model.head)};
  for (const auto* list : {&model.up, &model.down}) {
    for (const ops::Parameter& parameter : *list) result.push_back(tape.Grad(parameter));
  }
  machine.context.tape = nullptr;
  return result;
}

void ExpectSame(const std::vector<Tensor>& a, const std::vector<Tensor>& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(BitEqual(a[i], b[i])) << what << " " << i;
}

int64_t WeightSites(const Plan& plan) {
  int64_t count = 0;
  for (const SitePlan& site : plan.sites) count += FreezesWeight(site);
  return count;
}

void Move(TestModel& model) {
  for (auto* list : {&model.up, &model.down}) {
    for (ops::Parameter& parameter : *list) {
      for (float& value : std::get<Tensor>(parameter.value).MutableValues<float>()) value *= 1.01f;
    }
  }
}

struct Case {
  const char* name;
  bool qwix;
};
constexpr Case kRecipes[] = {{"int8", true}, {"int4", true}, {"int8", false}};

// Several passes and several steps: one preparation per weight and step, and the bits of doing it every time.
TEST(WeightCache, OncePerStepWithTheSameBits) {
  for (const Case& recipe : kRecipes) {
    TestModel model;
    const Plan plan = PlanFor(model, RulesOf(FindRecipe(recipe.name, recipe.qwix), {}));
    ops::TestBench machine;
    Provider cached(plan), plain(plan);
    for (int step = 0; step < 3; ++step) {
      cached.StartStep();
      for (uint64_t shard = 0; shard < 3; ++shard) {
        ExpectSame(Pass(machine, model, cached, 7 + shard), Pass(machine, model, plain, 7 + shard), recipe.name);
      }
      EXPECT_EQ(cached.weights().prepared(), (step + 1) * WeightSites(plan)) << recipe.name;
      EXPECT_EQ(plain.weights().prepared(), 0);
      Move(model);
    }
    EXPECT_GT(cached.weights().bytes(), 0);
  }
}

TEST(WeightCache, BothProductsStreamPanels) {
  TestRun test;
  const Tensor w = Random({32, 4, 8}, 1);
  DotQtConfig config;
  config.lhs.format = config.rhs.format = config.grad_lhs.format = config.grad_rhs.format = Format::kInt8;
  const DotDims dims{{1}, {0}, {}, {}};
  const PreparedWeight prepared = PrepareWeight(test.run, w, 2, dims, config, true);
  EXPECT_TRUE(prepared.forward.has_value() && prepared.backward.has_value());
  EXPECT_FALSE(PrepareWeight(test.run, w, 2, dims, config, false).backward.has_value());
}

// A weight that moved without StartStep never meets old codes.
TEST(WeightCache, AForgottenStartStepIsAnError) {
  for (const Case& recipe : kRecipes) {
    TestModel model;
    const Plan plan = PlanFor(model, RulesOf(FindRecipe(recipe.name, recipe.qwix), {}));
    ops::TestBench machine;
    Provider provider(plan);
    provider.StartStep();
    Pass(machine, model, provider, 7);
    Move(model);
    EXPECT_THAT(UsageMessage([&] { Pass(machine, model, provider, 7); }),
                HasSubstr("decoder/layers_0/mlp/wi_0/kernel changed after it was quantized for this step"));
    provider.StartStep();
    Provider fresh(plan);
    ExpectSame(Pass(machine, model, provider, 7), Pass(machine, model, fresh, 7), recipe.name);
    // One element is enough in a checking build.
    std::get<Tensor>(model.up[0].value).MutableData<float>()[17] += 1.0f;
#ifdef OCTAVO_CHECKS
    EXPECT_THROW(Pass(machine, model, provider, 7), Error);
#endif
  }
}

// A weight that is cast for every pass lies elsewhere each time; it is still the same weight.
TEST(WeightCache, KnowsAWeightByItsValues) {
  TestModel model;
  const Plan plan = PlanFor(model, RulesOf(FindRecipe("int8", true), {}));
  ops::TestBench machine;
  Provider provider(plan);
  provider.StartStep();
  const std::vector<Tensor> first = Pass(machine, model, provider, 7);
  for (auto* list : {&model.up, &model.down}) {
    for (ops::Parameter& parameter : *list) parameter.value = parameter.tensor().Clone();
  }
  ExpectSame(Pass(machine, model, provider, 7), first, "cloned");
  EXPECT_EQ(provider.weights().prepared(), WeightSites(plan));
}

// An output that recomputation kept is taken as it is, and the gradients are those of a full pass.
TEST(WeightCache, AKeptOutputIsNotComputedAgain) {
  TestModel model;
  const Plan plan = PlanFor(model, RulesOf(FindRecipe("int8", true), {}));
  const SitePlan* site = nullptr;
  for (const SitePlan& one : plan.sites) {
    if (one.weight == model.up[0].name) site = &one;
  }
  ASSERT_NE(site, nullptr);
  ops::TestBench machine;
  const Tensor x = RandomTensor(site->lhs, 3);
  const auto pass = [&](const Tensor* kept, MacCount& macs) {
    Provider provider(plan, {.macs = &macs});
    ops::Tape tape;
    machine.context.tape = &tape;
    const ops::Var leaf = tape.Leaf(x);
    const ops::Operand lhs = ops::Activation(leaf), rhs = ops::Weight(machine.context, model.up[0]);
    const ops::Var out = *provider.Dot(machine.context, ops::DotCall{site->site, lhs, rhs, site->dims, "", kept});
    tape.Run(machine.context, out, RandomTensor(out.shape(), 4));
    machine.context.tape = nullptr;
    return std::vector<Tensor>{out.value, tape.Grad(leaf), tape.Grad(model.up[0])};
  };
  MacCount full, less;
  const std::vector<Tensor> expected = pass(nullptr, full);
  ExpectSame(pass(&expected[0], less), expected, "kept");
  EXPECT_EQ(full.integer, 3 * site->macs);
  EXPECT_EQ(less.integer, 2 * site->macs);
}

TEST(WeightCache, WithoutStartStepNothingIsKept) {
  TestModel model;
  const Plan plan = PlanFor(model, RulesOf(FindRecipe("int8", true), {}));
  ops::TestBench machine;
  Provider provider(plan);
  Pass(machine, model, provider, 7);
  Move(model);
  Provider fresh(plan);
  ExpectSame(Pass(machine, model, provider, 7), Pass(machine, model, fresh, 7), "moved");
  EXPECT_EQ(provider.weights().bytes(), 0);
}

TEST(WeightCache, FrozenWeightsArePackedOnce) {
  for (const char* name : {"int8", "int4"}) {
    TestModel model;
    const Plan plan = PlanFor(model, RulesOf(FindRecipe(name, true), {}));
    ops::TestBench machine;
    Provider provider(plan);
    const auto freeze = [&](ops::Parameter& parameter, const Tensor& weight) {
      for (const SitePlan& site : plan.sites) {
        if (site.weight != parameter.name || !FreezesWeight(site)) continue;
        parameter.value = Freeze(provider.RunIn(machine.context, site), site, weight);
      }
    };
    const TestModel floats;
    const Tensor x = RandomTensor({TestModel::kBatch, TestModel::kTokens, TestModel::kWidth}, 7, 0.15f);
    machine.context.interceptor = &provider;
    const Tensor expected = floats.Run(machine.context, x).value;
    for (size_t i = 0; i < model.up.size(); ++i) {
      freeze(model.up[i], floats.up[i].tensor());
      freeze(model.down[i], floats.down[i].tensor());
    }
    for (int repeat = 0; repeat < 3; ++repeat) {
      EXPECT_TRUE(BitEqual(model.Run(machine.context, x).value, expected)) << name;
      provider.StartStep();  // frozen weights stay
    }
    EXPECT_EQ(provider.weights().prepared(), WeightSites(plan)) << name;
    // Other codes under the same name are packed anew.
    freeze(model.up[0], RandomTensor(floats.up[0].shape(), 99, 0.1f));
    EXPECT_FALSE(BitEqual(model.Run(machine.context, x).value, expected)) << name;
    EXPECT_EQ(provider.weights().prepared(), WeightSites(plan) + 1) << name;
  }
}

// What is known of a weight whose codes are gone holds for its site and its panels only.
TEST(WeightCache, WhatIsKnownOfASettledWeightGoesWithIt) {
  for (const char* name : {"int8", "int4"}) {
    TestModel model;
    const Plan plan = PlanFor(model, RulesOf(FindRecipe(name, true), {}));
    ops::TestBench machine;
    Provider provider(plan);
    provider.StartStep();
    machine.context.interceptor = &provider;
    const Tensor x = RandomTensor({TestModel::kBatch, TestModel::kTokens, TestModel::kWidth}, 7, 0.15f);
    const auto freeze = [&](ops::Parameter& parameter, const Tensor& weight) {
      for (const SitePlan& site : plan.sites) {
        if (site.weight != parameter.name || !FreezesWeight(site)) continue;
        parameter.value = Freeze(provider.RunIn(machine.context, site), site, weight);
      }
    };
    const auto settle = [&] {
      for (size_t i = 0; i < model.up.size(); ++i) {
        provider.weights().Release(model.up[i]);
        provider.weights().Release(model.down[i]);
      }
    };
    for (size_t i = 0; i < model.up.size(); ++i) {
      freeze(model.up[i], model.up[i].tensor());
      freeze(model.down[i], model.down[i].tensor());
    }
    const Tensor expected = model.Run(machine.context, x).value;
    settle();
    EXPECT_NE(provider.weights().Settled(model.up[0]), nullptr) << name;
    for (int repeat = 0; repeat < 3; ++repeat) {
      machine.context.StartModel();
      EXPECT_TRUE(BitEqual(model.Run(machine.context, x).value, expected)) << name << " " << repeat;
    }
    // Other codes: the panels of before are gone, and so is what was known of them.
    freeze(model.up[0], RandomTensor(model.up[0].shape(), 99, 0.1f));
    EXPECT_EQ(provider.weights().Settled(model.up[0]), nullptr) << name;
    machine.context.StartModel();
    const Tensor moved = model.Run(machine.context, x).value;
    EXPECT_FALSE(BitEqual(moved, expected)) << name;
    settle();
    for (int repeat = 0; repeat < 3; ++repeat) {
      machine.context.StartModel();
      EXPECT_TRUE(BitEqual(model.Run(machine.context, x).value, moved)) << name << " " << repeat;
    }
    // The same weight at a site that the plan does not have.
    machine.context.StartModel();
    const ops::Scope elsewhere(machine.context, "elsewhere");
    EXPECT_THAT(UsageMessage([&] { model.Run(machine.context, x); }), HasSubstr("is not in the plan")) << name;
  }
}

}  // namespace
}  // namespace octavo::quant
