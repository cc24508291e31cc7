#include "octavo/quant/rule.h"

#include <gtest/gtest.h>

#include "octavo/base/error_test_support.h"
#include "octavo/quant/recipe.h"

namespace octavo::quant {
namespace {

using ops::OpKind;

RuleSet Parse(std::string_view text, const Options& options = {}) {
  return RuleSet(ParseRules(Yaml::Parse(text, "rules.yml"), options));
}

std::string ErrorOf(std::string_view text, const Options& options = {}) {
  return ErrorText(ErrorCode::kUsage, [&] { Parse(text, options); });
}

TEST(Rule, FirstFullMatchWins) {
  const RuleSet rules = Parse(R"(
- {module_path: 'decoder/layers_0/.*', weight_qtype: int4, act_qtype: int8}
- {module_path: '.*wo'}
- {module_path: 'decoder/.*layers.*', op_names: [dot_general, gmm], weight_qtype: int8}
)");
  EXPECT_EQ(rules.Match("decoder/layers_0/mlp/wo", OpKind::kDotGeneral, true), 0);
  EXPECT_EQ(rules.Match("decoder/layers_1/mlp/wo", OpKind::kDotGeneral, true), 1);
  EXPECT_EQ(rules.Match("decoder/layers_1/mlp/wi_0", OpKind::kDotGeneral, true), 2);
  EXPECT_EQ(rules.Match("decoder/layers_1/mlp/wi_0", OpKind::kGmm, true), 2);
  EXPECT_EQ(rules.Match("decoder/layers_1/mlp/wi_0", OpKind::kEinsum, true), std::nullopt);
  EXPECT_EQ(rules.Match("decoder/logits_dense", OpKind::kDotGeneral, true), std::nullopt);
  EXPECT_FALSE(rules.rules()[1].treatment.has_value());
}

TEST(Rule, MatchesTheScannedSpellingToo) {
  const RuleSet rules = Parse("- {module_path: 'decoder/layers/mlp/.*', weight_qtype: int8}");
  EXPECT_EQ(rules.Match("decoder/layers_7/mlp/wi_0", OpKind::kDotGeneral, true), 0);
  EXPECT_EQ(rules.Match("decoder/layers/mlp/wi_0", OpKind::kDotGeneral, true), 0);
  EXPECT_EQ(rules.Match("decoder/layers_7/mlpx/wi_0", OpKind::kDotGeneral, true), std::nullopt);
}

TEST(Rule, ReadsEveryQwixKey) {
  const RuleSet rules = Parse(R"(
- module_path: x
  op_names: [einsum]
  weight_qtype: float8_e4m3fn
  act_qtype: float8_e4m3fn
  bwd_qtype: float8_e5m2
  weight_calibration_method: fixed,-224,224
  act_calibration_method: absmax,0.9
  bwd_calibration_method: rms,7
  tile_size: 128
  bwd_weight_grad_tile_size: 1/4
  disable_channelwise_axes: true
  act_static_scale: true
  act_batch_axes: [0, 1]
  bwd_stochastic_rounding: low_bit_uniform
  channelwise_noise_axes: [1]
  use_original_residuals: false
  disable_gradient_clipping: true
  weight_sparsity_n: 2
  weight_sparsity_m: 4
)");
  const auto& q = std::get<QwixTreatment>(*rules.rules()[0].treatment);
  EXPECT_EQ(q.weight, Format::kF8E4M3FN);
  EXPECT_EQ(q.gradient, Format::kF8E5M2);
  EXPECT_EQ(q.weight_calibration.method, CalibrationMethod::kFixed);
  EXPECT_EQ(q.activation_calibration.factor, 0.9);
  EXPECT_EQ(q.gradient_calibration.method, CalibrationMethod::kRms);
  EXPECT_EQ(std::get<int64_t>(*q.tile), 128);
  EXPECT_EQ(std::get<double>(*q.weight_gradient_tile), 0.25);
  EXPECT_TRUE(q.per_tensor);
  EXPECT_TRUE(q.static_activation);
  EXPECT_EQ(q.activation_batch_axes, (std::vector<int>{0, 1}));
  EXPECT_EQ(q.gradient_rounding, Rounding::kLowBitNoise);
  EXPECT_EQ(q.noise_axes, std::vector<int>{1});
  EXPECT_EQ(q.original_residuals, false);
  EXPECT_FALSE(q.mask_gradient);
  EXPECT_EQ(q.sparsity_n, 2);
}

TEST(Rule, ErrorsNameThePlaceAndTheFix) {
  EXPECT_TRUE(ErrorOf("- {module_path: x, weight_qtyp: int8}")
                  .starts_with("rules.yml:1: unknown key 'weight_qtyp' in a rule\ndid you mean 'weight_qtype', "));
  EXPECT_NE(ErrorOf("- {module_path: x, weight_qtype: int9}").find("rules.yml:1: weight_qtype: "), std::string::npos);
  EXPECT_NE(ErrorOf("- {module_path: '(', weight_qtype: int8}").find("module_path '('"), std::string::npos);
  EXPECT_NE(ErrorOf("- {module_path: 'a(?=b)', weight_qtype: int8}").find("module_path"), std::string::npos);
  EXPECT_NE(ErrorOf("- {op_names: [dot], weight_qtype: int8}").find("unknown op 'dot'"), std::string::npos);
  EXPECT_NE(ErrorOf("- {weight_qtype: int8, tile_size: 0}").find("tile_size"), std::string::npos);
  EXPECT_NE(ErrorOf("- {weight_qtype: int8, tile_size: 1.5}").find("a fraction"), std::string::npos);
  EXPECT_NE(ErrorOf("- {weight_qtype: int8, bwd_weight_grad_tile_size: 1/0}").find("1/N"), std::string::npos);
  EXPECT_NE(ErrorOf("- {weight_qtype: int8, weight_calibration_method: absmin}").find("absmin"), std::string::npos);
  EXPECT_NE(ErrorOf("- {weight_qtype: int8, act_static_scale: true}").find("needs act_qtype"), std::string::npos);
  EXPECT_NE(ErrorOf("- {weight_qtype: int8, weight_sparsity_n: 4, weight_sparsity_m: 2}").find("4:2"),
            std::string::npos);
  EXPECT_NE(ErrorOf("- {weight_qtype: int8, aqt: {weight: int8}}").find("cannot mix"), std::string::npos);
  EXPECT_NE(ErrorOf("- {weight_qtype: $nothing}").find("no option 'nothing'"), std::string::npos);
  EXPECT_NE(ErrorOf("module_path: x").find("expected a list of rules"), std::string::npos);
  EXPECT_NE(ErrorOf("- {aqt: {weight: int8, constant_bounds: '1,2,3'}}").find("six numbers"), std::string::npos);
  EXPECT_NE(ErrorOf("- {aqt: {weight: int8, constant_bounds: '1,2,3,0,5,6'}}").find("six positive"), std::string::npos);
}

TEST(Recipe, EveryBuiltInRecipeParses) {
  const std::vector<Recipe> recipes = BuiltInRecipes();
  EXPECT_EQ(recipes.size(), 24u);
  for (const Recipe& recipe : recipes) {
    EXPECT_FALSE(recipe.summary.empty()) << recipe.file;
    EXPECT_FALSE(recipe.use.empty()) << recipe.file;
    if (recipe.name == "intmp") continue;
    const std::vector<Rule> rules = RulesOf(recipe, {});
    ASSERT_EQ(rules.size(), 1u) << recipe.file;
    EXPECT_TRUE(rules[0].treatment.has_value()) << recipe.file;
    const RuleSet set(rules);
    EXPECT_EQ(set.Match("decoder/layers_0/mlp/wi_0", OpKind::kDotGeneral, true), 0) << recipe.file;
    EXPECT_EQ(set.Match("decoder/layers/mlp/wi_0", OpKind::kDotGeneral, true), 0) << recipe.file;
    EXPECT_EQ(set.Match("token_embedder", OpKind::kDotGeneral, true), std::nullopt) << recipe.file;
  }
}

TEST(Recipe, TheSameNameMeansTwoThings) {
  EXPECT_EQ(FindRecipe("int8", true).origin, Origin::kQwix);
  EXPECT_EQ(FindRecipe("int8", false).origin, Origin::kAqt);
  EXPECT_EQ(FindRecipe("w4a8", true).origin, Origin::kOctavo);
  EXPECT_EQ(FindRecipe("w4a8", false).origin, Origin::kOctavo);
  for (const auto& [name, qwix, expected] :
       {std::tuple("int9", true, "quantization='int9' is not a recipe\nknown: fp4 "),
        std::tuple("fp8_full", false,
                   "quantization='fp8_full' exists only with use_qwix_quantization=true\nwithout it: "),
        std::tuple("intmp", true, "quantization='intmp' exists only without use_qwix_quantization=true\nwith it: ")}) {
    try {
      FindRecipe(name, qwix);
      FAIL() << name;
    } catch (const Error& error) {
      EXPECT_TRUE(std::string_view(error.what()).starts_with(expected)) << error.what();
    }
  }
}

TEST(Recipe, OptionsReachTheRules) {
  const Recipe fp8 = FindRecipe("fp8_full", true);
  const std::vector<Rule> rules = RulesOf(
      fp8,
      {{"quantization_calibration_method", "fixed,-224,224"}, {"weight_sparsity_n", "2"}, {"weight_sparsity_m", "4"}});
  const auto& q = std::get<QwixTreatment>(*rules[0].treatment);
  EXPECT_EQ(q.weight_calibration.high, 224);
  EXPECT_EQ(q.activation_calibration.low, -224);
  EXPECT_EQ(q.gradient_calibration.method, CalibrationMethod::kAbsMax);
  EXPECT_EQ(q.sparsity_m, 4);
  const auto shards = [](std::string_view count) {
    const std::vector<Rule> made =
        RulesOf(FindRecipe("int8", false), {{"quantization_local_shard_count", std::string(count)}});
    return std::get<AqtTreatment>(*made[0].treatment);
  };
  EXPECT_EQ(shards("4").weight_gradient_shards, 4);
  EXPECT_EQ(shards("-1").weight_gradient_shards, 1);
  EXPECT_FALSE(shards("0").grad_rhs.has_value());
  EXPECT_THROW(RulesOf(FindRecipe("int8", true), {{"quantization_local_shard_count", "0"}}), Error);
  EXPECT_THROW(RulesOf(FindRecipe("int8", true), {{"weight_sparsity_n", "2"}}), Error);
  EXPECT_THROW(RulesOf(FindRecipe("intmp", false), {}), Error);
}

TEST(MixedPrecision, LastMatchWinsAndFieldsAreInherited) {
  const std::vector<Rule> rules = ParseMixedPrecision(
      R"json({"__default__": {"w_bits": 8, "a_bits": 8}, ".*/query": {"w_bits": 4, "tile_size": 128},
              ".*/(query|key)": {"w_bits": 4, "w_scale": 0.9}})json",
      "q.json");
  const RuleSet set(rules);
  const auto treatment = [&](std::string_view path) {
    const std::optional<int> rule = set.Match(path, OpKind::kDotGeneral, true);
    return std::get<AqtTreatment>(*set.rules()[static_cast<size_t>(rule.value())].treatment);
  };
  const AqtTreatment query = treatment("decoder/layers_0/self_attention/query");
  EXPECT_EQ(query.weight, Format::kInt4);
  EXPECT_EQ(query.activation, Format::kInt8);
  EXPECT_EQ(query.weight_clip, 0.9);
  EXPECT_EQ(query.tile, 0);
  EXPECT_EQ(treatment("decoder/layers_0/mlp/wo").weight, Format::kInt8);
  EXPECT_TRUE(treatment("decoder/layers_0/mlp/wo").forward_codes);
}

// Either number of bits may stand alone; the other operand stays in float.
TEST(MixedPrecision, OneOperandAlone) {
  const auto treatment = [](const char* json) {
    return std::get<AqtTreatment>(*ParseMixedPrecision(json, "q.json").back().treatment);
  };
  EXPECT_FALSE(treatment(R"({"__default__": {"a_bits": 8}})").weight.has_value());
  EXPECT_EQ(treatment(R"({"__default__": {"a_bits": 8}})").activation, Format::kInt8);
  EXPECT_FALSE(treatment(R"({"__default__": {"w_bits": 4}})").activation.has_value());
  EXPECT_FALSE(ParseMixedPrecision("{}", "q.json").back().treatment.has_value());
}

TEST(MixedPrecision, MalformedFilesAreErrors) {
  for (const char* bad :
       {"", "[]", "{", R"({"a": 1})", R"({"a": {"w_bits": 5}})", R"({"a": {"w_bit": 8}})", R"({"a": {"tile_size": 0}})",
        R"({"a": {"w_scale": 2}})", "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["}) {
    EXPECT_THROW(ParseMixedPrecision(bad, "q.json"), Error) << bad;
  }
}

TEST(Rule, AboutCaches) {
  const std::vector<Rule> rules =
      ParseRules(Yaml::Parse("- kv_cache: {format: int4, axes: dkv}\n- weight_qtype: int8\n", "rules.yml"));
  ASSERT_TRUE(rules[0].kv.has_value());
  EXPECT_EQ(rules[0].kv->format, (ops::KvFormat{Format::kInt4, true}));
  const RuleSet set(rules);
  // Neither kind of rule says anything about the other kind of site.
  EXPECT_EQ(set.Match("decoder/layers_0/mlp/wi_0", ops::OpKind::kDotGeneral, true), 1);
  EXPECT_EQ(set.Match("decoder/layers_0/self_attention/attention_op", ops::OpKind::kKvCache, false), 0);
  EXPECT_EQ(RuleSet({rules[1]}).Match("decoder/x", ops::OpKind::kKvCache, false), std::nullopt);
  for (const char* wrong : {"- kv_cache: {format: int2}", "- kv_cache: {axes: heads}", "- kv_cache: {width: 3}",
                            "- {kv_cache: {format: int8}, weight_qtype: int8}"}) {
    EXPECT_THROW(ParseRules(Yaml::Parse(wrong, "rules.yml")), Error) << wrong;
  }
}

}  // namespace
}  // namespace octavo::quant
