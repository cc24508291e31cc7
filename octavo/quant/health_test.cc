#include "octavo/quant/health.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "octavo/quant/health_warnings.h"
#include "octavo/quant/quant_test_support.h"
#include "octavo/quant/quantize_run.h"
#include "octavo/quant/recipe.h"
#include "octavo/quant/test_model.h"

namespace octavo::quant {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();

// Counted by hand: scale 1, codes -128 … 127.
TEST(Health, CountsWhatItSays) {
  TestRun test;
  const Tensor x = F32({1, 10}, {0.0f, 0.3f, -0.4f, 1.0f, 127.4f, 127.6f, 200.0f, -128.4f, -129.0f, 2.25f});
  const QArray q{
      Tensor::FromValues<int8_t>({1, 10}, DType::kI8, std::vector<int8_t>{0, 0, 0, 1, 127, 127, 127, -128, -128, 2}),
      F32({1, 1}, {1.0f}), std::nullopt, Format::kInt8};
  const OperandHealth light = MeasureHealth(test.run, x, q, false, false);
  EXPECT_EQ(light.elements, 10);
  EXPECT_EQ(light.saturated, 3);  // 127.6, 200 and -129; 127.4 only rounds
  EXPECT_EQ(light.nonfinite, 0);
  EXPECT_EQ(light.measured, 0);
  const OperandHealth full = MeasureHealth(test.run, x, q, false, true);
  EXPECT_EQ(full.saturated, 3);
  EXPECT_EQ(full.measured, 10);
  EXPECT_EQ(full.flushed, 2);
  EXPECT_EQ(full.amax, 200.0f);
  EXPECT_EQ(full.smallest, 0.3f);
  EXPECT_EQ(full.scale_min, 1.0f);
  EXPECT_EQ(full.scale_max, 1.0f);
  double squares = 0, errors = 0;
  for (int64_t i = 0; i < 10; ++i) {
    const double value = x.Values<float>()[static_cast<size_t>(i)];
    squares += value * value;
    errors += std::pow(value - q.qvalue.Values<int8_t>()[static_cast<size_t>(i)], 2);
  }
  EXPECT_DOUBLE_EQ(full.squares, squares);
  EXPECT_DOUBLE_EQ(full.error_squares, errors);
  EXPECT_NEAR(full.Sqnr(), 10 * std::log10(squares / errors), 1e-9);
}

TEST(Health, RangesOfEveryFormat) {
  TestRun test;
  struct Case {
    Format format;
    float inside, outside;
  };
  for (const Case& one :
       {Case{Format::kInt8, 127.45f, 127.6f}, Case{Format::kInt4, 7.45f, 7.6f}, Case{Format::kF8E4M3FN, 463.0f, 466.0f},
        Case{Format::kF8E5M2, 61000.0f, 62000.0f}, Case{Format::kF4E2M1FN, 6.9f, 7.1f}}) {
    const DType dtype = Info(one.format).dtype;
    const QArray q{Tensor::Zeros({2, 1}, dtype), F32({1, 1}, {0.5f}), std::nullopt, one.format};
    const auto count = [&](float value) {
      return MeasureHealth(test.run, F32({2, 1}, {0.5f * value, -0.5f * value}), q, false, false).saturated;
    };
    EXPECT_EQ(count(one.inside), 0) << Info(one.format).name;
    // The negative end of integers lies one step further out.
    EXPECT_EQ(count(one.outside), Info(one.format).kind == FormatKind::kInteger ? 1 : 2) << Info(one.format).name;
  }
}

// Light and full agree, whatever scales look like and however many threads count.
TEST(Health, EqualForAnyThreadsAndMode) {
  TestRun one(1), three(3);
  uint32_t seed = 0;
  for (const Granularity& granularity : {Granularity{{0}, {}}, Granularity{{1}, {}}, Granularity{{}, {}},
                                         Granularity{{0}, {{1, int64_t{16}}}}, Granularity{{1}, {{0, int64_t{5}}}}}) {
    for (Format format : {Format::kInt8, Format::kInt4, Format::kF8E4M3FN}) {
      const Tensor x = Random({145, 96}, ++seed);
      const HowToQuantize how{format, granularity, ParseCalibration("absmax,0.5")};
      const QArray q = Quantize(one.run, x, how);
      const OperandHealth a = MeasureHealth(one.run, x, q, false, true);
      const OperandHealth b = MeasureHealth(three.run, x, q, false, true);
      const OperandHealth light = MeasureHealth(three.run, x, q, false, false);
      EXPECT_GT(a.saturated, 0);
      EXPECT_EQ(a.saturated, b.saturated);
      EXPECT_EQ(a.saturated, light.saturated);
      EXPECT_EQ(a.flushed, b.flushed);
      EXPECT_EQ(a.squares, b.squares);
      EXPECT_EQ(a.error_squares, b.error_squares);
      EXPECT_EQ(a.amax, b.amax);
      // A scale that follows its values clips nothing.
      const QArray whole = Quantize(one.run, x, {format, granularity, {}});
      EXPECT_EQ(MeasureHealth(one.run, x, whole, false, false).saturated, 0);
    }
  }
}

TEST(Health, NonFiniteIsCountedInBothModes) {
  TestRun test;
  Tensor x = Random({8, 16}, 1);
  x.MutableData<float>()[5] = kNan;
  x.MutableData<float>()[70] = kInf;
  const QArray q = Quantize(test.run, x, {Format::kInt8, {{0}, {}}, {}});
  EXPECT_EQ(MeasureHealth(test.run, x, q, true, false).nonfinite, 2);
  EXPECT_EQ(MeasureHealth(test.run, x, q, true, true).nonfinite, 2);
}

TEST(Health, WarningsNameSiteOperandAndLimit) {
  HealthRecords records;
  OperandHealth& fine = records[{"a", "forward.lhs"}];
  fine.elements = fine.measured = 1000;
  fine.squares = 1e6;
  fine.error_squares = 1;
  OperandHealth& bad = records[{"decoder/layers_3/mlp/wo", "grad_lhs.lhs"}];
  bad = fine;
  bad.format = Format::kF8E5M2;
  bad.follows = false;
  bad.saturated = 2;
  bad.flushed = 51;
  bad.error_squares = 1e5;
  bad.nonfinite = 1;
  EXPECT_THAT(WarningLines(FindHealthWarnings(records)),
              ElementsAre(HasSubstr("decoder/layers_3/mlp/wo grad_lhs.lhs (float8_e5m2): 1 values are NaN"),
                          HasSubstr("saturated 0.20 %"), HasSubstr("flushed to zero 5.1 %"), HasSubstr("10.0 dB")));
}

// A run of 100 layers must not print 100 lines.
TEST(Health, WarningsOfManySitesAreOneLine) {
  HealthRecords records;
  for (int layer = 0; layer < 12; ++layer) {
    OperandHealth& health = records[{fmt::format("decoder/layers_{}/mlp/wo", layer), "grad_rhs.lhs"}];
    health.elements = health.measured = 1000;
    health.squares = 1e6;
    health.flushed = layer == 4 ? 91 : layer == 0 ? 1 : 60;
    health.error_squares = layer == 7 ? 1e5 : 1;
    health.amax = layer == 9 ? 21.0f : 1.0f;
  }
  const std::map<HealthKey, float> before = {{{"decoder/layers_9/mlp/wo", "grad_rhs.lhs"}, 2.0f},
                                             {{"decoder/layers_8/mlp/wo", "grad_rhs.lhs"}, 0.2f}};
  EXPECT_THAT(
      WarningLines(FindHealthWarnings(records, before)),
      ElementsAre("grad_rhs.lhs (int8) of 11 sites: flushed to zero up to 9.1 % (limit 5 %), most at "
                  "decoder/layers_4/mlp/wo",
                  "decoder/layers_7/mlp/wo grad_rhs.lhs (int8): signal-to-noise ratio 10.0 dB (limit 20 dB)",
                  "decoder/layers_9/mlp/wo grad_rhs.lhs (int8): largest magnitude grew 10 times within 100 steps "
                  "(limit 10)"));
}

TEST(Health, ModesAndFilter) {
  EXPECT_EQ(ParseHealthMode("light"), HealthMode::kLight);
  EXPECT_THAT(UsageMessage([] { ParseHealthMode("some"); }), HasSubstr("expected off, light or full"));
  EXPECT_THAT(UsageMessage([] { HealthSink(HealthMode::kLight, "("); }), HasSubstr("quant_stats_filter"));
  HealthSink sink(HealthMode::kLight, ".*mlp.*");
  EXPECT_TRUE(sink.Wants("decoder/layers_0/mlp/wi_0"));
  EXPECT_FALSE(sink.Wants("decoder/layers_0/attention_op"));
  EXPECT_FALSE(HealthSink(HealthMode::kOff).Wants("anything"));
}

Tensor Step(ops::TestBench& machine, const TestModel& model, Provider& provider, const Tensor& x, float spike = 1.0f) {
  ops::Tape tape;
  machine.context.interceptor = &provider;
  machine.context.tape = &tape;
  const ops::Var leaf = tape.Leaf(x), out = model.Run(machine.context, leaf);
  Tensor grad = RandomTensor(out.shape(), 5);
  grad.MutableData<float>()[3] *= spike;
  tape.Run(machine.context, out, grad);
  machine.context.tape = nullptr;
  return out.value;
}

const Shape kInput = {TestModel::kBatch, TestModel::kTokens, TestModel::kWidth};

// Every operand that a plan quantizes reports, under the plan's names, and looking changes no bits.
TEST(Health, EveryQuantizedOperandReports) {
  const TestModel model;
  ops::TestBench machine;
  const Tensor x = RandomTensor(kInput, 1, 0.15f);
  for (const Recipe& recipe : BuiltInRecipes()) {
    if (recipe.name == "intmp" || recipe.name == "w4a8") continue;
    const Plan plan = PlanFor(model, RulesOf(recipe, {}));
    HealthSink sink(HealthMode::kFull), light(HealthMode::kLight);
    Provider seen(plan, {.health = &sink}), glanced(plan, {.health = &light}), unseen(plan);
    const Tensor out = Step(machine, model, unseen, x);
    EXPECT_TRUE(BitEqual(Step(machine, model, seen, x), out)) << recipe.file;
    EXPECT_TRUE(BitEqual(Step(machine, model, glanced, x), out)) << recipe.file;
    ASSERT_EQ(light.records().size(), sink.records().size()) << recipe.file;
    for (const auto& [key, health] : light.records()) {
      EXPECT_EQ(health.saturated, sink.records().at(key).saturated) << recipe.file << " " << key.operand;
      EXPECT_EQ(health.elements, sink.records().at(key).elements) << recipe.file << " " << key.operand;
    }
    std::set<std::pair<std::string, std::string>> found;
    for (const auto& [key, health] : sink.records()) {
      found.emplace(key.site, key.operand);
      EXPECT_GT(health.measured, 0);
      EXPECT_GT(health.Sqnr(), 0) << recipe.file << " " << key.site << " " << key.operand;
      EXPECT_EQ(health.nonfinite, 0);
    }
    for (const SitePlan& site : plan.sites) {
      if (!site.treatment) continue;
      const auto expect = [&](const OperandPlan& operand, const char* name) {
        // Codes of the forward pass are counted there.
        const bool own = operand.format && operand.granularity.find("codes of the forward pass") == std::string::npos;
        if (!own) return;
        EXPECT_TRUE(found.contains({site.site.path, name})) << recipe.file << " " << site.site.path << " " << name;
      };
      expect(site.forward.lhs, "forward.lhs");
      expect(site.forward.rhs, "forward.rhs");
      expect(site.grad_lhs.lhs, "grad_lhs.lhs");
      expect(site.grad_rhs.lhs, "grad_rhs.lhs");
    }
  }
}

TEST(Health, EqualForAnyNumberOfThreadsThroughAStep) {
  const TestModel model;
  const Plan plan = PlanFor(model, RulesOf(FindRecipe("int8", true), {}));
  const Tensor x = RandomTensor(kInput, 1, 0.15f);
  std::vector<HealthRecords> all;
  for (int threads : {1, 2, 3}) {
    ops::TestBench machine(threads);
    HealthSink sink(HealthMode::kFull);
    Provider provider(plan, {.health = &sink});
    Step(machine, model, provider, x);
    all.push_back(sink.Take());
    EXPECT_TRUE(sink.records().empty());
  }
  for (size_t i = 1; i < all.size(); ++i) {
    ASSERT_EQ(all[i].size(), all[0].size());
    for (const auto& [key, health] : all[0]) {
      const OperandHealth& other = all[i].at(key);
      EXPECT_EQ(health.flushed, other.flushed);
      EXPECT_EQ(health.squares, other.squares);
      EXPECT_EQ(health.error_squares, other.error_squares);
      EXPECT_EQ(health.scale_max, other.scale_max);
    }
  }
}

// An infinite output gradient is named where it is first quantized, in every family.
TEST(Health, NonFiniteErrorNamesSiteOperandAndProduct) {
  const TestModel model;
  ops::TestBench machine;
  const Tensor x = RandomTensor(kInput, 1, 0.15f);
  ProviderOptions strict;
  strict.arithmetic.non_finite = NonFinite::kError;
  const auto message = [&](const char* recipe, bool qwix, const Tensor& input, float spike) -> std::string {
    const Plan plan = PlanFor(model, RulesOf(FindRecipe(recipe, qwix), {}));
    Provider provider(plan, strict);
    try {
      Step(machine, model, provider, input, spike);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kNumbers);
      machine.context.tape = nullptr;
      return error.message();
    }
    return "no error";
  };
  struct Case {
    const char* name;
    bool qwix;
  };
  for (const Case& one : {Case{"int8", true}, Case{"int8", false}, Case{"fp8", false}, Case{"fp8_full", true},
                          Case{"te_fp8_delayedscaling", false}, Case{"te_fp8_currentscaling", false},
                          Case{"te_mxfp8", false}, Case{"te_nvfp4", false}}) {
    EXPECT_EQ(message(one.name, one.qwix, x, 1.0f), "no error") << one.name;
    const std::string found = message(one.name, one.qwix, x, kInf);
    EXPECT_THAT(found, HasSubstr("decoder/layers_1/mlp/wo")) << one.name;
    EXPECT_THAT(found, HasSubstr("(output gradient)")) << one.name;
    Tensor bad = x.Clone();
    bad.MutableData<float>()[7] = kNan;
    EXPECT_THAT(message(one.name, one.qwix, bad, 1.0f), HasSubstr("decoder/layers_0/mlp/wi_0, forward.lhs"))
        << one.name;
  }
}

}  // namespace
}  // namespace octavo::quant
