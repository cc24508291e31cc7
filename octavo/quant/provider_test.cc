#include "octavo/quant/provider.h"

#include <gtest/gtest.h>

#include <cmath>

#include "octavo/base/error.h"
#include "octavo/ops/dot.h"
#include "octavo/quant/recipe.h"
#include "octavo/quant/test_model.h"

namespace octavo::quant {
namespace {

constexpr int64_t kBatch = TestModel::kBatch, kTokens = TestModel::kTokens, kWidth = TestModel::kWidth;

std::vector<Rule> Rules(std::string_view text) { return ParseRules(Yaml::Parse(text, "rules.yml")); }

// Every recipe that needs no file, with options that fit the small model.
std::vector<std::pair<std::string, std::vector<Rule>>> AllRecipes() {
  std::vector<std::pair<std::string, std::vector<Rule>>> result;
  for (const Recipe& recipe : BuiltInRecipes()) {
    if (recipe.name == "intmp") continue;
    Options options;
    if (recipe.name == "w4a8") options = {{"quantization_group_size", "32"}};
    result.emplace_back(recipe.file, RulesOf(recipe, options));
  }
  return result;
}

struct Step {
  Tensor out, grad_x;
  std::vector<Tensor> grads;
};

Step Train(ops::TestBench& machine, const TestModel& model, const Plan& plan, const Tensor& x, const Tensor& grad,
           MacCount* macs = nullptr) {
  Provider provider(plan, {.macs = macs});
  ops::Tape tape;
  machine.context.interceptor = &provider;
  machine.context.tape = &tape;
  const ops::Var leaf = tape.Leaf(x);
  const ops::Var out = model.Run(machine.context, leaf);
  tape.Run(machine.context, out, grad);
  machine.context.interceptor = nullptr;
  machine.context.tape = nullptr;
  Step step{out.value, tape.Grad(leaf), {}};
  for (const auto* list : {&model.up, &model.down}) {
    for (const ops::Parameter& parameter : *list) step.grads.push_back(tape.Grad(parameter));
  }
  step.grads.push_back(tape.Grad(model.head));
  return step;
}

double RelativeError(const Tensor& found, const Tensor& expected) {
  const std::vector<float> a = found.ToVector<float>(), b = expected.ToVector<float>();
  double difference = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - b[i], 2);
    size += static_cast<double>(b[i]) * b[i];
  }
  return std::sqrt(difference / size);
}

const Tensor& Input() {
  static const Tensor x = RandomTensor({kBatch, kTokens, kWidth}, 1, 0.15f);
  return x;
}
const Tensor& OutputGrad() {
  static const Tensor grad = RandomTensor({kBatch, kTokens, TestModel::kVocabulary}, 2);
  return grad;
}

TEST(Provider, AnInt8StepRunsOnIntegerKernelsOnly) {
  const TestModel model;
  const Plan plan = PlanFor(model, RulesOf(FindRecipe("int8", true), {}));
  ops::TestBench machine;
  MacCount macs;
  Train(machine, model, plan, Input(), OutputGrad(), &macs);
  int64_t planned = 0;
  for (const SitePlan& site : plan.sites) planned += site.treatment ? 3 * site.macs : 0;
  EXPECT_GT(planned, 0);
  EXPECT_EQ(macs.integer, planned);
  EXPECT_EQ(macs.floating, 0);
}

TEST(Provider, EveryRecipeStaysNearFloatInBothDirections) {
  const TestModel model;
  ops::TestBench machine;
  const Step exact = Train(machine, model, PlanFor(model, {}), Input(), OutputGrad());
  for (const auto& [name, rules] : AllRecipes()) {
    const Step step = Train(machine, model, PlanFor(model, rules), Input(), OutputGrad());
    // Eight-bit integers are close; small floats and the first step of a history (scale 1) are coarser, four bits
    // coarser still. A wrong scale anywhere would be off by half or more.
    const bool four_bits = name.find("int4") != std::string::npos || name.find("fp4") != std::string::npos ||
                           name.find("w4a8") != std::string::npos;
    const double bound = four_bits ? 0.6 : name.find("int8") != std::string::npos ? 0.12 : 0.35;
    EXPECT_LT(RelativeError(step.out, exact.out), bound) << name;
    EXPECT_LT(RelativeError(step.grad_x, exact.grad_x), bound) << name;
    EXPECT_GT(RelativeError(step.out, exact.out), 1e-5) << name << " left everything in float";
    for (size_t i = 0; i < step.grads.size(); ++i) {
      EXPECT_LT(RelativeError(step.grads[i], exact.grads[i]), bound) << name << " " << i;
    }
  }
}

// Says how often branches were multiplied together.
class CountingProvider : public Provider {
 public:
  using Provider::Provider;
  std::optional<std::vector<ops::Var>> Dots(ops::Context& context, std::span<const ops::DotCall> calls) override {
    std::optional<std::vector<ops::Var>> answers = Provider::Dots(context, calls);
    together += answers.has_value();
    return answers;
  }
  int together = 0;
};

TEST(Provider, ServedBranchesTogetherEqualEachAlone) {
  constexpr int64_t kDepth = 256;
  for (const char* rule : {"weight_qtype: int8, act_qtype: int8", "weight_qtype: int4, act_qtype: int8"}) {
    ops::Parameter weights[] = {{"query/kernel", RandomTensor({kDepth, 4, 12}, 1, 0.1f)},
                                {"key/kernel", RandomTensor({kDepth, 2, 12}, 2, 0.1f)},
                                {"value/kernel", RandomTensor({kDepth, 33}, 3, 0.1f)}};
    const ops::Branch branches[] = {{"query", weights[0]}, {"key", weights[1]}, {"value", weights[2]}};
    const auto dry_run = [&](ops::Context& context) {
      ops::ProjectEach(context, Tensor::Meta({1, kDepth}, DType::kF32), branches);
    };
    const Plan plan =
        MakePlan(dry_run, RuleSet(Rules(std::string("- {module_path: '.*', ") + std::string(rule) + "}")));
    ops::TestBench machine;
    CountingProvider provider(plan);
    ASSERT_EQ(plan.sites.size(), 3u);
    for (size_t i = 0; i < 3; ++i) {
      const quant::Run run = provider.RunIn(machine.context, plan.sites[i]);
      weights[i].value = Freeze(run, plan.sites[i], weights[i].tensor());
    }
    for (const int64_t rows : {1, 3, 8, 20}) {
      const Tensor x = RandomTensor({rows, kDepth}, 9, 0.5f);
      for (int repeat = 0; repeat < 2; ++repeat) {  // weights are packed by the first product, streamed by the second
        ops::Context together = machine.context, each = machine.context;  // two steps of one model
        together.interceptor = each.interceptor = &provider;
        const std::vector<ops::Var> all = ops::ProjectEach(together, x, branches);
        ASSERT_EQ(all.size(), 3u);
        for (size_t i = 0; i < 3; ++i) {
          const ops::Scope scope(each, branches[i].module);
          const Tensor alone = ops::Project(each, x, weights[i]).value;
          EXPECT_TRUE(BitEqual(all[i].value, alone)) << rule << ", " << rows << " rows, branch " << i;
        }
      }
    }
    EXPECT_GE(provider.together, 4) << rule;
  }
}

TEST(Provider, FrozenWeightsGiveTheBitsOfTraining) {
  const TestModel model;
  for (const auto& [name, rules] : AllRecipes()) {
    const Plan plan = PlanFor(model, rules);
    ops::TestBench machine;
    Provider provider(plan);
    machine.context.interceptor = &provider;
    const Tensor trained = model.Run(machine.context, Input()).value;
    TestModel frozen = model;
    for (auto* list : {&frozen.up, &frozen.down}) {
      for (ops::Parameter& parameter : *list) {
        for (const SitePlan& site : plan.sites) {
          if (site.weight != parameter.name) continue;
          ASSERT_TRUE(FreezesWeight(site)) << name;
          const quant::Run run = provider.RunIn(machine.context, site);
          parameter.value = Freeze(run, site, parameter.tensor());
          break;
        }
      }
    }
    const Tensor served = frozen.Run(machine.context, Input()).value;
    EXPECT_TRUE(BitEqual(trained, served)) << name;
  }
}

TEST(Provider, ThreadsNeverChangeABit) {
  const TestModel model;
  for (const auto& [name, rules] : AllRecipes()) {
    const Plan plan = PlanFor(model, rules);
    ops::TestBench one(1);
    const Step expected = Train(one, model, plan, Input(), OutputGrad());
    for (int threads : {2, 3, 7}) {
      ops::TestBench many(threads);
      const Step found = Train(many, model, plan, Input(), OutputGrad());
      EXPECT_TRUE(BitEqual(found.out, expected.out)) << name << " " << threads;
      EXPECT_TRUE(BitEqual(found.grad_x, expected.grad_x)) << name << " " << threads;
      for (size_t i = 0; i < found.grads.size(); ++i) EXPECT_TRUE(BitEqual(found.grads[i], expected.grads[i])) << name;
    }
  }
}

// Two requests in one batch never change each other's numbers, unless the plan says that they do.
TEST(Provider, RequestsAreIndependentWhereThePlanSaysSo) {
  const ops::Parameter kernel{"decoder/layers_0/mlp/wi_0/kernel", RandomTensor({64, 96}, 3, 0.1f)};
  const auto run = [&](ops::TestBench& machine, const Tensor& x, const Plan* plan, const std::vector<Rule>& rules) {
    const auto model = [&](ops::Context& context, const ops::Var& input) {
      context.StartModel();
      const ops::Scope scope(context, "decoder/layers_0/mlp/wi_0");
      return ops::Project(context, input, kernel);
    };
    Plan made;
    if (plan == nullptr)
      made = MakePlan([&](ops::Context& c) { model(c, Tensor::Meta(x.shape(), DType::kF32)); }, RuleSet(rules),
                      {.backward = false});
    Provider provider(plan == nullptr ? made : *plan);
    machine.context.interceptor = &provider;
    Tensor out = model(machine.context, x).value;
    machine.context.interceptor = nullptr;
    return std::pair(out, made.sites.empty() ? Coupling::kNone : made.sites[0].coupling);
  };
  ops::TestBench machine;
  Tensor x = RandomTensor({3, 16, 64}, 4);
  for (int64_t i = 0; i < 16 * 64; ++i) x.MutableValues<float>()[i] *= 50.0f;  // a loud neighbour
  for (const auto& [name, rules] : AllRecipes()) {
    const auto [together, coupling] = run(machine, x, nullptr, rules);
    const Tensor alone = run(machine, x.Slice(0, 2, 3).Contiguous(), nullptr, rules).first;
    const bool equal = BitEqual(together.Slice(0, 2, 3).Contiguous(), alone);
    EXPECT_EQ(equal, coupling == Coupling::kNone) << name;
  }
}

TEST(Provider, DelayedStateIsExactUnderReplayAndAccumulation) {
  const TestModel model;
  for (const char* name : {"fp8_gpu", "fp8_nanoo"}) {
    const Plan plan = PlanFor(model, RulesOf(FindRecipe(name, true), {}));
    const auto steps = [&](bool replay, bool split) {
      ops::TestBench machine;
      Provider provider(plan);
      ops::StateStore state;
      for (uint64_t i = 0; i < 3; ++i) {
        ops::UpdateSink sink;
        const Tensor x = RandomTensor({kBatch, kTokens, kWidth}, 40 + i);
        machine.context.interceptor = &provider;
        machine.context.state = &state;
        const auto pass = [&](const Tensor& part, const Tensor& grad, bool observe) {
          ops::Tape tape;
          machine.context.tape = &tape;
          machine.context.updates = observe ? &sink : nullptr;
          const ops::Var leaf = tape.Leaf(part);
          tape.Run(machine.context, model.Run(machine.context, leaf), grad);
          machine.context.tape = nullptr;
        };
        if (replay) pass(x, OutputGrad(), false);
        if (split) {
          for (int64_t b = 0; b < kBatch; ++b) {
            // The attention product couples nothing across the batch, so two halves see what the whole sees.
            pass(x.Slice(0, b, b + 1).Contiguous(), OutputGrad().Slice(0, b, b + 1).Contiguous(), true);
          }
        } else {
          pass(x, OutputGrad(), true);
        }
        AdvanceState(plan, sink, state);
      }
      return state;
    };
    const ops::StateStore plain = steps(false, false);
    EXPECT_EQ(plain.values().size(), 4u * 6u);
    for (const auto& other : {steps(true, false), steps(false, true), steps(true, true)}) {
      ASSERT_EQ(other.values().size(), plain.values().size());
      for (const auto& [key, value] : plain.values())
        EXPECT_TRUE(BitEqual(value, other.Find(key))) << name << " " << key;
    }
    const Tensor history = plain.Find("decoder/layers_0/mlp/wi_0/dot_general0/input_amax_history");
    ASSERT_EQ(history.size(), 1024);
    EXPECT_GT(history.Values<float>()[0], 0.0f);
    EXPECT_GT(history.Values<float>()[1023], 0.0f);
    EXPECT_EQ(history.Values<float>()[1], 0.0f);
  }
}

TEST(Provider, StaticRangesAreTheMeanOfWhatWasSeen) {
  const TestModel model;
  const Plan plan = PlanFor(model, Rules("- {module_path: '.*/wi_0', weight_qtype: int8, act_qtype: int8, "
                                         "act_static_scale: true, disable_channelwise_axes: true}"));
  ops::TestBench machine;
  Provider provider(plan);
  ops::StateStore state;
  machine.context.interceptor = &provider;
  machine.context.state = &state;
  for (uint64_t i = 0; i < 3; ++i) {
    ops::UpdateSink sink;
    machine.context.updates = &sink;
    model.Run(machine.context, RandomTensor({kBatch, kTokens, kWidth}, 60 + i));
    AdvanceState(plan, sink, state);
  }
  const Tensor count = state.Find("decoder/layers_0/mlp/wi_0/dot_general0_lhs/count");
  ASSERT_TRUE(count.defined());
  EXPECT_EQ(state.values().size(), 4u);
}

TEST(Provider, SparsityFollowsItsSchedule) {
  const TestModel model;
  const Plan plan = PlanFor(
      model,
      Rules("- {module_path: '.*/wi_0', weight_qtype: int8, act_qtype: int8, bwd_qtype: int8, weight_sparsity_n: 2, "
            "weight_sparsity_m: 4, weight_sparsity_start_step: 1, weight_sparsity_update_step: 2}"));
  ops::TestBench machine;
  Provider provider(plan);
  ops::StateStore state;
  std::vector<Tensor> masks;
  for (uint64_t step = 0; step < 4; ++step) {
    TestModel now = model;
    now.up[0].value = RandomTensor({kWidth, TestModel::kHidden}, 70 + step, 0.1f);  // the weights move on
    ops::UpdateSink sink;
    ops::Tape tape;
    machine.context.interceptor = &provider;
    machine.context.state = &state;
    machine.context.updates = &sink;
    machine.context.tape = &tape;
    tape.Run(machine.context, now.Run(machine.context, tape.Leaf(Input())), OutputGrad());
    machine.context.tape = nullptr;
    AdvanceState(plan, sink, state);
    masks.push_back(state.Find("decoder/layers_0/mlp/wi_0/dot_general0/sparsity_mask"));
    ASSERT_TRUE(masks.back().defined());
    const std::vector<float> keep = masks.back().ToVector<float>(), grad = tape.Grad(now.up[0]).ToVector<float>();
    double kept = 0;
    for (size_t i = 0; i < keep.size(); ++i) {
      kept += keep[i];
      if (keep[i] == 0) {
        ASSERT_EQ(grad[i], 0.0f);
      }
    }
    EXPECT_EQ(kept, static_cast<double>(keep.size()) / (step == 0 ? 1 : 2));
  }
  EXPECT_TRUE(BitEqual(masks[1], masks[2]));
  EXPECT_FALSE(BitEqual(masks[2], masks[3]));
}

TEST(Provider, ASiteOutsideThePlanIsAnError) {
  const TestModel model;
  const Plan plan = PlanFor(model, Rules("- {module_path: '.*/wo', weight_qtype: int8}"));
  ops::TestBench machine;
  Provider provider(plan);
  machine.context.interceptor = &provider;
  const ops::Scope scope(machine.context, "encoder");
  try {
    model.Run(machine.context, Input());
    FAIL();
  } catch (const Error& error) {
    EXPECT_TRUE(std::string_view(error.what())
                    .starts_with("site encoder/decoder/layers_0/attention_op einsum0 is not in the plan"))
        << error.what();
  }
}

}  // namespace
}  // namespace octavo::quant
