#include "octavo/optim/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "octavo/base/error.h"
#include "octavo/base/rng.h"
#include "octavo/optim/clipping.h"
#include "octavo/optim/routing_bias.h"

namespace octavo::optim {
namespace {

Tensor Random(const Shape& shape, uint64_t seed) {
  Tensor values = Tensor::Empty(shape, DType::kF32);
  for (int64_t i = 0; i < shape.size(); ++i) {
    values.MutableData<float>()[i] = Normal(RngKey::FromSeed(seed), static_cast<uint64_t>(i));
  }
  return values;
}

struct TwoParameters {
  ops::Parameter kernel{"decoder/mlp/kernel", Random({3, 4}, 1)};
  ops::Parameter scale{"decoder/norm/scale", Random({4}, 2)};
  std::vector<ops::Parameter*> all{&kernel, &scale};
};

// The definition, in double.
struct Reference {
  double w, m = 0, v = 0;
  void AdamW(double g, double rate, double decay, int64_t t) {
    m = 0.9 * m + 0.1 * g;
    v = 0.95 * v + 0.05 * g * g;
    const double mhat = m / (1 - std::pow(0.9, t)), vhat = v / (1 - std::pow(0.95, t));
    w -= rate * (mhat / (std::sqrt(vhat) + 1e-8) + decay * w);
  }
  void AdamPax(double g, double rate, double decay, int64_t t) {
    const auto d = [t](double b) { return b * (1 - std::pow(b, t - 1)) / (1 - std::pow(b, t)); };
    m = d(0.9) * m + (1 - d(0.9)) * g;
    v = d(0.95) * v + (1 - d(0.95)) * g * g;
    w -= rate * (m / (std::sqrt(v) + 1e-8) + decay * w);
  }
};

class Adam : public testing::TestWithParam<OptimizerKind> {};

TEST_P(Adam, FollowsTheDefinition) {
  TwoParameters model;
  ThreadPool pool(1);
  Optimizer optimizer({.kind = GetParam(), .no_decay = {"scale$"}}, model.all);
  EXPECT_TRUE(optimizer.Decays(0));
  EXPECT_FALSE(optimizer.Decays(1));
  Reference kernel{model.kernel.tensor().Data<float>()[5]}, scale{model.scale.tensor().Data<float>()[3]};
  for (int64_t t = 1; t <= 5; ++t) {
    const Gradients gradients = {Random({3, 4}, 100 + static_cast<uint64_t>(t)),
                                 Random({4}, 200 + static_cast<uint64_t>(t))};
    optimizer.Step(pool, kernels::ChooseIsa().isa, gradients, 0.01, 0.5);
    const double g0 = 0.5 * gradients[0].Data<float>()[5], g1 = 0.5 * gradients[1].Data<float>()[3];
    if (GetParam() == OptimizerKind::kAdamW) {
      kernel.AdamW(g0, 0.01, 0.1, t);
      scale.AdamW(g1, 0.01, 0, t);
    } else {
      kernel.AdamPax(g0, 0.01, 0.1, t);
      scale.AdamPax(g1, 0.01, 0, t);
    }
  }
  EXPECT_EQ(optimizer.count(), 5);
  EXPECT_NEAR(model.kernel.tensor().Data<float>()[5], kernel.w, 1e-6);
  EXPECT_NEAR(model.scale.tensor().Data<float>()[3], scale.w, 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Kinds, Adam, testing::Values(OptimizerKind::kAdamW, OptimizerKind::kAdamPax));

TEST(Optimizer, Sgd) {
  TwoParameters model;
  const float before = model.kernel.tensor().Data<float>()[0];
  ThreadPool pool(1);
  Optimizer optimizer({.kind = OptimizerKind::kSgd}, model.all);
  optimizer.Step(pool, kernels::Isa::kReference, {Random({3, 4}, 9), Tensor()}, 0.5, 1);
  EXPECT_FLOAT_EQ(model.kernel.tensor().Data<float>()[0], before - 0.5f * Random({3, 4}, 9).Data<float>()[0]);
  EXPECT_EQ(optimizer.State().size(), 1u);  // the count
}

TEST(Optimizer, NoGradientStillDecays) {
  TwoParameters model;
  const float before = model.kernel.tensor().Data<float>()[0];
  ThreadPool pool(1);
  Optimizer optimizer({}, model.all);
  optimizer.Step(pool, kernels::Isa::kReference, {Tensor(), Tensor()}, 0.5, 1);
  EXPECT_FLOAT_EQ(model.kernel.tensor().Data<float>()[0], before - 0.5f * 0.1f * before);
}

TEST(Optimizer, StateMakesARunGoOn) {
  TwoParameters straight, resumed;
  ThreadPool pool(1);
  const kernels::Isa isa = kernels::ChooseIsa().isa;
  const auto gradients = [](uint64_t t) { return Gradients{Random({3, 4}, 10 + t), Random({4}, 20 + t)}; };
  Optimizer a({}, straight.all), b({}, resumed.all);
  for (uint64_t t = 0; t < 4; ++t) a.Step(pool, isa, gradients(t), 0.01, 1);
  for (uint64_t t = 0; t < 2; ++t) b.Step(pool, isa, gradients(t), 0.01, 1);
  std::map<std::string, Tensor> saved;
  for (const NamedTensor& item : b.State()) saved[item.first] = item.second.Clone();
  EXPECT_TRUE(saved.contains("opt/mu/decoder/mlp/kernel") && saved.contains("opt/nu/decoder/norm/scale"));
  Optimizer c({}, resumed.all);
  c.Restore(saved);
  for (uint64_t t = 2; t < 4; ++t) c.Step(pool, isa, gradients(t), 0.01, 1);
  EXPECT_TRUE(BitEqual(straight.kernel.tensor(), resumed.kernel.tensor()));
  EXPECT_TRUE(BitEqual(straight.scale.tensor(), resumed.scale.tensor()));
}

TEST(Optimizer, RestoreNamesEveryProblem) {
  TwoParameters model;
  Optimizer optimizer({}, model.all);
  std::map<std::string, Tensor> saved;
  for (const NamedTensor& item : optimizer.State()) saved[item.first] = item.second;
  saved.erase("opt/mu/decoder/mlp/kernel");
  saved["opt/nu/decoder/norm/scale"] = Tensor::Zeros({5}, DType::kF32);
  saved["opt/extra"] = Tensor::Zeros({1}, DType::kF32);
  try {
    optimizer.Restore(saved);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("opt/mu/decoder/mlp/kernel is missing"), std::string::npos);
    EXPECT_NE(error.message().find("opt/nu/decoder/norm/scale: expected f32[4], found f32[5]"), std::string::npos);
    EXPECT_NE(error.message().find("opt/extra is superfluous"), std::string::npos);
  }
}

TEST(Optimizer, RefusesWhatItCannotDo) {
  TwoParameters model;
  EXPECT_THROW(OptimizerByName("lion"), Error);
  EXPECT_THROW(Optimizer({.no_decay = {"("}}, model.all), Error);
  EXPECT_THROW(Optimizer({.no_decay = {"no_such_name"}}, model.all), Error);
}

TEST(Clipping, NormIsThatOfAllElementsInAnyOrderOfParameters) {
  ThreadPool one(1), three(3);
  const kernels::Isa isa = kernels::ChooseIsa().isa;
  const std::vector<Tensor> tensors = {Random({3000, 7}, 1), Tensor(), Random({5}, 2)};
  double squares = 0;
  for (const Tensor& tensor : tensors) {
    if (!tensor.defined()) continue;
    for (const float value : tensor.Values<float>()) squares += static_cast<double>(value) * value;
  }
  const double norm = GlobalNorm(one, isa, {"b", "x", "a"}, tensors);
  EXPECT_NEAR(norm, std::sqrt(squares), 1e-12 * norm);
  EXPECT_EQ(norm, GlobalNorm(three, kernels::Isa::kReference, {"a", "b", "x"}, {tensors[2], tensors[0], tensors[1]}));
  EXPECT_EQ(ClipFactor(2, 1), 0.5);
  EXPECT_EQ(ClipFactor(0.5, 1), 1);
  EXPECT_EQ(ClipFactor(100, 0), 1);
}

TEST(RoutingBias, MovesByTheSignOfTheImbalance) {
  Tensor bias = Tensor::FromValues<float>({4}, DType::kF32, std::vector<float>{0, 0, 0.5f, -0.5f});
  UpdateRoutingBias(std::vector<int64_t>{10, 0, 5, 5}, 0.25, bias);
  EXPECT_EQ(bias.ToVector<float>(), (std::vector<float>{-0.25f, 0.25f, 0.5f, -0.5f}));
  // 1 token more than a mean that is no whole number still counts.
  UpdateRoutingBias(std::vector<int64_t>{2, 2, 2, 1}, 0.25, bias);
  EXPECT_EQ(bias.ToVector<float>(), (std::vector<float>{-0.5f, 0.0f, 0.25f, -0.25f}));
}

}  // namespace
}  // namespace octavo::optim
