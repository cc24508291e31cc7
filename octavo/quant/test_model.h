// A small model for tests of rules, plans and providers: two layers of projections, an attention product, experts and a
// head.
#pragma once

#include <string>
#include <vector>

#include "octavo/base/rng.h"
#include "octavo/ops/add.h"
#include "octavo/ops/dot.h"
#include "octavo/ops/tape.h"
#include "octavo/ops/test_support.h"
#include "octavo/quant/provider.h"

namespace octavo::quant {

inline Tensor RandomTensor(const Shape& shape, uint64_t seed, float spread = 1.0f) {
  Tensor result = Tensor::Empty(shape, DType::kF32);
  const auto values = result.MutableValues<float>();
  for (size_t i = 0; i < values.size(); ++i) values[i] = spread * Normal(RngKey::FromSeed(seed), i);
  return result;
}

struct TestModel {
  static constexpr int64_t kBatch = 2, kTokens = 16, kWidth = 64, kHidden = 128, kVocabulary = 48;
  std::vector<ops::Parameter> up, down;
  ops::Parameter head;

  TestModel() {
    for (int i : {0, 1}) {
      const std::string layer = fmt::format("decoder/layers_{}/mlp/", i);
      up.push_back({layer + "wi_0/kernel", RandomTensor({kWidth, kHidden}, 10 + static_cast<uint64_t>(i), 0.1f)});
      down.push_back({layer + "wo/kernel", RandomTensor({kHidden, kWidth}, 20 + static_cast<uint64_t>(i), 0.1f)});
    }
    head = {"decoder/logits_dense/kernel", RandomTensor({kWidth, kVocabulary}, 30, 0.1f)};
  }

  ops::Var Run(ops::Context& context, ops::Var x) const {
    context.StartModel();
    const ops::Scope decoder(context, "decoder");
    for (size_t i = 0; i < up.size(); ++i) {
      const ops::Scope layer(context, fmt::format("layers_{}", i));
      {
        const ops::Scope attention(context, "attention_op");
        const ops::Var scores = ops::Einsum(context, "btd,bsd->bts", ops::Activation(x), ops::Activation(x));
        x = ops::Add(context, x, ops::Einsum(context, "bts,bsd->btd", ops::Activation(scores), ops::Activation(x)));
      }
      const ops::Scope mlp(context, "mlp");
      x = Project(context, "wo", ops::Relu(context, Project(context, "wi_0", x, up[i])), down[i]);
    }
    return Project(context, "logits_dense", x, head);
  }

  // Runs without a plan's caller having to know the shapes.
  void DryRun(ops::Context& context) const { Run(context, Tensor::Meta({kBatch, kTokens, kWidth}, DType::kF32)); }

  static ops::Var Project(ops::Context& context, const char* name, const ops::Var& x, const ops::Parameter& kernel) {
    const ops::Scope scope(context, name);
    return ops::Project(context, x, kernel);
  }
};

inline Plan PlanFor(const TestModel& model, const std::vector<Rule>& rules) {
  return MakePlan([&](ops::Context& context) { model.DryRun(context); }, RuleSet(rules));
}

}  // namespace octavo::quant
