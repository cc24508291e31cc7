#include "octavo/quant/plan.h"

#include <gtest/gtest.h>

#include "octavo/base/error_test_support.h"
#include "octavo/quant/recipe.h"
#include "octavo/quant/test_model.h"

namespace octavo::quant {
namespace {

Plan PlanOf(std::string_view rules, const PlanOptions& options = {}) {
  const TestModel model;
  const RuleSet set(ParseRules(Yaml::Parse(rules, "rules.yml")));
  return MakePlan([&](ops::Context& context) { model.DryRun(context); }, set, options);
}

std::string ErrorOf(std::string_view rules) {
  return ErrorText(ErrorCode::kUsage, [&] { PlanOf(rules); });
}

TEST(Plan, NamesEverySiteAndItsRule) {
  const Plan plan = PlanOf(
      "- {module_path: '.*/wo'}\n- {module_path: 'decoder/.*layers.*', op_names: [dot_general], weight_qtype: int8, "
      "act_qtype: int8, bwd_qtype: int8}");
  std::vector<std::string> found;
  for (const SitePlan& site : plan.sites) found.push_back(fmt::format("{} {}", site.site.ToString(), site.rule));
  EXPECT_EQ(found, (std::vector<std::string>{
                       "decoder/layers_0/attention_op einsum0 -1", "decoder/layers_0/attention_op einsum1 -1",
                       "decoder/layers_0/mlp/wi_0 dot_general0 1", "decoder/layers_0/mlp/wo dot_general0 0",
                       "decoder/layers_1/attention_op einsum0 -1", "decoder/layers_1/attention_op einsum1 -1",
                       "decoder/layers_1/mlp/wi_0 dot_general0 1", "decoder/layers_1/mlp/wo dot_general0 0",
                       "decoder/logits_dense dot_general0 -1"}));
}

TEST(Plan, SharesSumToOneHundred) {
  const Plan plan =
      PlanOf("- {module_path: 'decoder/.*layers.*', op_names: [dot_general], weight_qtype: int8, act_qtype: int8}");
  int64_t macs = 0;
  for (const SitePlan& site : plan.sites) macs += site.macs;
  EXPECT_EQ(macs, plan.macs());
  const int64_t tokens = TestModel::kBatch * TestModel::kTokens;
  const int64_t projections = 2 * 2 * tokens * 64 * 128;
  const int64_t attention = 2 * 2 * tokens * 16 * 64;
  EXPECT_EQ(macs, projections + attention + tokens * 64 * 48);
  EXPECT_DOUBLE_EQ(plan.quantized_share(), static_cast<double>(projections) / static_cast<double>(macs));
}

TEST(Plan, PrintsTheTable) {
  const Plan plan = PlanOf(
      "- {module_path: 'decoder/layers_0/mlp/.*', weight_qtype: int8, act_qtype: int8, bwd_qtype: int8, "
      "bwd_weight_grad_tile_size: 1/2}\n"
      "- {module_path: 'decoder/layers_1/mlp/.*', weight_qtype: float8_e4m3fn, act_qtype: float8_e4m3fn, bwd_qtype: "
      "float8_e5m2, "
      "act_calibration_method: 'fixed,-224,224'}");
  const std::string table = PlanTable(plan);
  for (const char* expected : {
           "decoder/layers_0/mlp/wi_0 dot_general0  [2, 16, 64] x [64, 128]  rule 1  ",
           "    forward   int8, per channel (1 x 1 x 64), absmax",
           "int8, tiles of 8 (2 x 8 x 1), absmax",
           "codes of the forward pass",
           "float8_e4m3fn, per tensor, fixed,224",
           "[i8: lhs is float8_e4m3fn; i8: rhs is float8_e4m3fn]",
           "plan      int8 and float8_e4m3fn fwd, int8 and float8_e5m2 x float8_e4m3fn bwd   4 of 9 matmuls   ",
           "float: decoder/layers_0/attention_op (no rule), decoder/layers_1/attention_op (no rule), "
           "decoder/logits_dense (no rule)",
       }) {
    EXPECT_NE(table.find(expected), std::string::npos) << expected << "\n" << table;
  }
}

TEST(Plan, CouplingIsDeclared) {
  const auto coupling = [](std::string_view rule) {
    return PlanOf(rule).Find({0, "decoder/layers_0/mlp/wo", ops::OpKind::kDotGeneral, 0})->coupling;
  };
  EXPECT_EQ(coupling("- {module_path: '.*/wo', weight_qtype: int8, act_qtype: int8}"), Coupling::kNone);
  EXPECT_EQ(coupling("- {module_path: '.*/wo', weight_qtype: int8}"), Coupling::kNone);
  EXPECT_EQ(coupling("- {module_path: '.*/wo', weight_qtype: int8, act_qtype: int8, disable_channelwise_axes: true}"),
            Coupling::kBatch);
  EXPECT_EQ(coupling("- {module_path: '.*/wo', weight_qtype: int8, act_qtype: int8, disable_channelwise_axes: true, "
                     "act_static_scale: true}"),
            Coupling::kNone);
  EXPECT_EQ(coupling("- {module_path: '.*/wo', weight_qtype: int8, act_qtype: int8, disable_channelwise_axes: true, "
                     "act_calibration_method: 'fixed,4'}"),
            Coupling::kNone);
  EXPECT_EQ(coupling("- {module_path: '.*/wo', block: {form: current_scaling}}"), Coupling::kBatch);
  EXPECT_EQ(coupling("- {module_path: '.*/wo', block: {form: mxfp8}}"), Coupling::kNone);
  EXPECT_EQ(coupling("- {module_path: '.*/wo', delayed: {form: direct}}"), Coupling::kNone);
}

TEST(Plan, ErrorsNameTheNearestSites) {
  const std::string unused = ErrorOf("- {module_path: 'decoder/layers_.*/mlp/wi', weight_qtype: int8}");
  EXPECT_TRUE(unused.starts_with(
      "rule 1 'decoder/layers_.*/mlp/wi' matches no site of the model\nnearest sites: decoder/layers_0/mlp/w"))
      << unused;
  EXPECT_NE(ErrorOf("- {module_path: '.*wo'}\n- {module_path: '.*wo', weight_qtype: int8}").find("rule 2"),
            std::string::npos);
  EXPECT_NE(
      ErrorOf("- {module_path: '.*', op_names: [gmm], weight_qtype: int8}").find("rule 1 '.*' (gmm) matches no site"),
      std::string::npos);
  EXPECT_NE(ErrorOf("- {module_path: '.*/wo', weight_qtype: int8, tile_size: 48}").find("decoder/layers_0/mlp/wo"),
            std::string::npos);
  EXPECT_NE(ErrorOf("- {module_path: '.*/wo', grouped: {group: 96}}").find("groups of 96 do not divide K = 128"),
            std::string::npos);
  EXPECT_NE(ErrorOf("- {module_path: '.*/logits_dense', block: {form: nvfp4}}").find("no error"), std::string::npos);
  EXPECT_NE(
      ErrorOf("- {module_path: '.*', op_names: [einsum], weight_qtype: int8, act_qtype: int8, only_weights: true}")
          .find("matches no site"),
      std::string::npos);
  PlanOptions options;
  options.allow_unused_rules = true;
  const TestModel model;
  const RuleSet rules(ParseRules(Yaml::Parse("- {module_path: 'encoder/.*', weight_qtype: int8}", "rules.yml")));
  try {
    MakePlan([&](ops::Context& context) { model.DryRun(context); }, rules, options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("no site of the model is quantized"), std::string::npos);
  }
}

TEST(Plan, RefusesSumsPastTheExactBound) {
  const ops::Parameter kernel{"kernel", Tensor::Meta({131072, 8}, DType::kF32)};
  const RuleSet rules(ParseRules(Yaml::Parse("- {weight_qtype: int8, act_qtype: int8}", "rules.yml")));
  try {
    MakePlan(
        [&](ops::Context& context) {
          ops::Project(context, Tensor::Meta({2, 131072}, DType::kF32), kernel);
        },
        rules);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("131072 terms do not fit an exact int32 sum"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace octavo::quant
