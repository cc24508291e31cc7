// Kinds of cases about training dots: Qwix's dot_general_qt and ragged_dot_qt with both gradients and every quantized
// operand.
#include <nlohmann/json.hpp>

#include "octavo/base/error.h"
#include "octavo/cli/golden.h"
#include "octavo/cli/golden_quant.h"
#include "octavo/quant/dot_qt.h"
#include "octavo/quant/ragged_dot.h"

namespace octavo {
namespace {

using Json = nlohmann::json;

bool IsDotQt(const GoldenCase& golden) { return golden.call().starts_with("dot_general_qt.dot_general_qt"); }
bool IsRaggedQt(const GoldenCase& golden) { return golden.call().starts_with("ragged_dot_qt.ragged_dot_qt"); }

int64_t NumberArg(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_integer()) ThrowFile("args: {} is not a whole number", key);
  return found->get<int64_t>();
}

quant::SparsityPattern SparsityArg(const Json& rule) {
  const auto order = rule.find("weight_sparsity_order");
  if (order == rule.end() || (*order != "R" && *order != "C")) ThrowFile("args: weight_sparsity_order is not R or C");
  return {NumberArg(rule, "weight_sparsity_n"), NumberArg(rule, "weight_sparsity_m"),
          *order == "R" ? quant::SparsityOrder::kLastAxis : quant::SparsityOrder::kSecondToLast,
          NumberArg(rule, "weight_sparsity_block_size"), NumberArg(rule, "weight_sparsity_offset")};
}

quant::GradientProduct GradientArg(const Json& config, const std::string& side) {
  quant::GradientProduct product;
  product.format = FormatArg(config, side + "_grad_qtype");
  product.calibration = CalibrationArg(config, side + "_grad_calibration_method");
  product.per_tensor = FlagArg(config, side + "_grad_disable_channelwise_axes");
  product.tile = TileArg(config, side + "_tile_size");
  product.residual_format = FormatArg(config, side + "_residual_qtype");
  product.residual_calibration = CalibrationArg(config, side + "_residual_calibration_method");
  const auto noise = config.find(side + "_stochastic_rounding_noise_fn");
  if (noise == config.end() || noise->is_null()) return product;
  ExpectKeys(*noise, {"method", "channelwise_noise_axes"});
  product.rounding = quant::ParseRounding(noise->value("method", "?"));
  product.noise_axes = AxesArg((*noise)["channelwise_noise_axes"]);
  return product;
}

quant::DotQtConfig ConfigArg(const Json& config) {
  ExpectKeys(config, {"lhs_qtype",
                      "rhs_qtype",
                      "lhs_calibration_method",
                      "rhs_calibration_method",
                      "tile_size",
                      "lhs_disable_channelwise_axes",
                      "rhs_disable_channelwise_axes",
                      "dlhs_grad_qtype",
                      "drhs_grad_qtype",
                      "dlhs_grad_calibration_method",
                      "drhs_grad_calibration_method",
                      "dlhs_grad_disable_channelwise_axes",
                      "drhs_grad_disable_channelwise_axes",
                      "dlhs_tile_size",
                      "drhs_tile_size",
                      "dlhs_residual_qtype",
                      "drhs_residual_qtype",
                      "dlhs_residual_calibration_method",
                      "drhs_residual_calibration_method",
                      "dlhs_stochastic_rounding_noise_fn",
                      "drhs_stochastic_rounding_noise_fn",
                      "use_original_residuals",
                      "disable_gradient_clipping",
                      "sparsity_rule"});
  quant::DotQtConfig result;
  result.lhs = {FormatArg(config, "lhs_qtype"), CalibrationArg(config, "lhs_calibration_method"),
                FlagArg(config, "lhs_disable_channelwise_axes")};
  result.rhs = {FormatArg(config, "rhs_qtype"), CalibrationArg(config, "rhs_calibration_method"),
                FlagArg(config, "rhs_disable_channelwise_axes")};
  result.tile = TileArg(config, "tile_size");
  result.grad_lhs = GradientArg(config, "dlhs");
  result.grad_rhs = GradientArg(config, "drhs");
  result.original_residuals = FlagArg(config, "use_original_residuals");
  result.mask_gradients = !FlagArg(config, "disable_gradient_clipping");
  const auto sparsity = config.find("sparsity_rule");
  if (sparsity != config.end() && !sparsity->is_null()) result.rhs_sparsity = SparsityArg(*sparsity);
  return result;
}

void CheckTrace(const GoldenCase& golden, GoldenCheck& check, const std::string& side,
                const quant::GradientTrace& trace) {
  if (trace.grad) CheckArray(golden, check, "g_for_" + side, *trace.grad);
  if (trace.residual) CheckArray(golden, check, "residual_for_" + side, *trace.residual);
  const std::string scaled = "g_for_" + side + "_scaled_input";
  if (trace.scaled_grad && golden.HasOutput(scaled)) CheckOutput(golden, check, scaled, *trace.scaled_grad);
  if (trace.noise && golden.HasOutput("noise")) check.Output("noise", *trace.noise);
}

void RunDotQt(const GoldenCase& golden, ThreadPool& pool, GoldenCheck& check) {
  ExpectKeys(golden.Field("args"), {"config", "dimension_numbers"});
  const GoldenRun run(golden, pool);
  const DotDims dims = DotDimsArg(golden.Arg("dimension_numbers"));
  const Tensor lhs = golden.Input("lhs"), rhs = golden.Input("rhs"), grad = golden.Input("g");
  std::optional<RngKey> key;
  if (golden.HasInput("key")) key = KeyInput(golden, "key");
  const auto all = [&] {
    const quant::DotQtConfig config = ConfigArg(golden.Arg("config"));
    quant::DotQtForward forward = quant::DotGeneralQt(run.run(), lhs, rhs, dims, config);
    auto gradients = quant::DotGeneralQtBackward(run.run(), forward.residuals, config, grad, key, /*trace=*/true);
    return std::pair(std::move(forward), std::move(gradients));
  };
  if (golden.error()) {
    check.ExpectError([&] { all(); });
    return;
  }
  const auto [forward, gradients] = all();
  CheckOutput(golden, check, "out", forward.out);
  CheckOutput(golden, check, "dlhs", gradients.lhs);
  CheckOutput(golden, check, "drhs", gradients.rhs);
  if (const auto* array = std::get_if<QArray>(&forward.residuals.lhs)) CheckArray(golden, check, "lhs", *array);
  if (const auto* array = std::get_if<QArray>(&forward.residuals.rhs)) CheckArray(golden, check, "rhs", *array);
  CheckTrace(golden, check, "dlhs", gradients.lhs_trace);
  CheckTrace(golden, check, "drhs", gradients.rhs_trace);
}

void RunRaggedQt(const GoldenCase& golden, ThreadPool& pool, GoldenCheck& check) {
  const Json& args = golden.Field("args");
  ExpectKeys(args, {"lhs_qtype", "rhs_qtype", "dlhs_grad_qtype", "drhs_grad_qtype"});
  const GoldenRun run(golden, pool);
  const auto lhs = FormatArg(args, "lhs_qtype"), rhs = FormatArg(args, "rhs_qtype");
  if (!lhs || !rhs) ThrowFile("args: both operands need a qtype");
  const quant::RaggedDotQtConfig config{*lhs, *rhs, FormatArg(args, "dlhs_grad_qtype"),
                                        FormatArg(args, "drhs_grad_qtype")};
  std::vector<int64_t> sizes;
  for (int32_t size : golden.Input("group_sizes").ToVector<int32_t>()) sizes.push_back(size);
  const auto forward = quant::RaggedDotQt(run.run(), golden.Input("lhs"), golden.Input("rhs"), sizes, config);
  const auto gradients = quant::RaggedDotQtBackward(run.run(), forward, sizes, config, golden.Input("g"));
  CheckOutput(golden, check, "out", forward.out);
  CheckOutput(golden, check, "dlhs", gradients.lhs);
  CheckOutput(golden, check, "drhs", gradients.rhs);
  CheckArray(golden, check, "lhs", forward.lhs);
  CheckArray(golden, check, "rhs", forward.rhs);
  if (gradients.grad_for_lhs) CheckArray(golden, check, "g_for_dlhs", *gradients.grad_for_lhs);
  if (gradients.grad_for_rhs) CheckArray(golden, check, "g_for_drhs", *gradients.grad_for_rhs);
}

}  // namespace

std::vector<GoldenKind> TrainingDotKinds() {
  return {{"qwix dot_general_qt", IsDotQt, RunDotQt}, {"qwix ragged_dot_qt", IsRaggedQt, RunRaggedQt}};
}

}  // namespace octavo
