// Kinds of cases about AQT: dots with both gradients and all quantized operands, frozen weights.
#include <nlohmann/json.hpp>

#include "octavo/base/error.h"
#include "octavo/cli/golden.h"
#include "octavo/cli/golden_quant.h"
#include "octavo/quant/aqt.h"

namespace octavo {
namespace {

using Json = nlohmann::json;

bool IsDot(const GoldenCase& golden) {
  return golden.call().starts_with("DotGeneral(") && golden.Arg("maker").is_string();
}
bool IsFreeze(const GoldenCase& golden) {
  return golden.call().starts_with("AqtDotGeneral module") && golden.Arg("maker").is_string();
}

quant::AqtNumerics BitsArg(const Json& bits) {
  if (bits.is_null()) return quant::AqtNumerics::None();
  if (bits.is_number_integer()) return quant::AqtNumerics::Integer(bits.get<int>());
  if (bits.is_string()) return quant::ParseAqtBits(bits.get<std::string>());
  ThrowFile("args: bits {} are not known", bits.dump());
}

int64_t ShardsArg(const Json& local) {
  if (local.is_null()) return 0;
  ExpectKeys(local, {"contraction_axis_shard_count"});
  return local["contraction_axis_shard_count"].get<int64_t>();
}

// "AbsMaxCalibration(clipping_scale=0.8) both sides"
std::optional<double> ClippingOf(const Json& calibration) {
  if (calibration.is_null()) return std::nullopt;
  const std::string text = calibration.is_string() ? calibration.get<std::string>() : "";
  const auto number = Between(text, "AbsMaxCalibration(clipping_scale=", ")");
  if (!number || !text.ends_with(" both sides")) ThrowFile("args: calibration {} is not known", calibration.dump());
  return std::stod(*number);
}

quant::AqtConfig ConfigArg(const GoldenCase& golden) {
  const Json& maker = golden.Arg("maker");
  const bool noisy = golden.Arg("stochastic_rounding") == true;
  const Json& rng = golden.Arg("rng_type");
  const quant::AqtNoise noise =
      !noisy ? quant::AqtNoise::kNone : quant::ParseAqtNoise(rng.is_string() ? rng.get<std::string>() : "jax.uniform");
  quant::AqtConfig config;
  if (maker == "dot_general_make") {
    config = quant::AqtDotGeneralMake(BitsArg(golden.Arg("lhs_bits")), BitsArg(golden.Arg("rhs_bits")));
  } else {
    const quant::AqtBits bits{BitsArg(golden.Arg("fwd_bits")), BitsArg(golden.Arg("dlhs_bits")),
                              BitsArg(golden.Arg("drhs_bits"))};
    const int64_t shards = ShardsArg(golden.Arg("drhs_local_aqt"));
    if (maker == "config_v3") {
      config = quant::AqtConfigV3(bits, noise, DTypeArg(golden.Arg("drhs_accumulator_dtype")), shards);
    } else if (maker == "config_v4") {
      config = quant::AqtConfigV4(bits, noise, shards);
    } else {
      ThrowFile("args: maker {} is not known", maker.dump());
    }
  }
  if (const auto type = DTypeArg(golden.Arg("fwd_accumulator_dtype"))) config.forward.accumulator = type;
  if (const Json& all = golden.Arg("accumulators"); all.is_string()) {
    const auto type = DTypeArg(Between(all.get<std::string>(), "", " x3").value_or("?"));
    config.forward.accumulator = config.grad_lhs.accumulator = config.grad_rhs.accumulator = type;
  }
  if (const Json& axes = golden.Arg("calib_shared_axes"); !axes.is_null()) {
    if (axes != "per_tensor x6") ThrowFile("args: calib_shared_axes {} are not known", axes.dump());
    std::vector<double> bounds;
    if (golden.Arg("constant_bounds").is_array()) bounds = golden.Arg("constant_bounds").get<std::vector<double>>();
    quant::SetAqtPerTensor(config, bounds);
  }
  if (const auto clipping = ClippingOf(golden.Arg("fwd_calibration"))) {
    config.forward.lhs.clipping_scale = config.forward.rhs.clipping_scale = *clipping;
  }
  if (const Json& scale = golden.Arg("set_absmax_calib_scale"); scale.is_number()) {
    quant::SetAqtClippingScale(config, scale.get<double>());
  }
  if (golden.Arg("use_fwd_quant") == true) ThrowFile("args: use_fwd_quant true is not known here");
  return config;
}

void CheckSide(const GoldenCase& golden, GoldenCheck& check, const std::string& name,
               const std::optional<QArray>& array) {
  if (array) CheckArray(golden, check, name, *array);
}

void RunDot(const GoldenCase& golden, ThreadPool& pool, GoldenCheck& check) {
  ExpectKeys(golden.Field("args"),
             {"maker", "stochastic_rounding", "rng_type", "fwd_bits", "dlhs_bits", "drhs_bits", "lhs_bits", "rhs_bits",
              "dimension_numbers", "drhs_accumulator_dtype", "fwd_accumulator_dtype", "accumulators", "drhs_local_aqt",
              "use_fwd_quant", "calib_shared_axes", "constant_bounds", "fwd_calibration", "set_absmax_calib_scale"});
  const GoldenRun run(golden, pool);
  const DotDims dims = DotDimsArg(golden.Arg("dimension_numbers"));
  const quant::AqtConfig config = ConfigArg(golden);
  std::optional<RngKey> key;
  if (golden.HasInput("key")) key = KeyInput(golden, "key");
  const auto forward = quant::AqtDotGeneral(run.run(), golden.Input("lhs"), golden.Input("rhs"), dims, config);
  const auto gradients = quant::AqtDotGeneralBackward(run.run(), forward.residuals, config, golden.Input("g"), key);
  check.Output("out", forward.out);
  check.Output("dlhs", gradients.lhs);
  check.Output("drhs", gradients.rhs);
  CheckSide(golden, check, "fwd_lhs", forward.residuals.lhs_q);
  CheckSide(golden, check, "fwd_rhs", forward.residuals.rhs_q);
  CheckSide(golden, check, "dlhs_g", gradients.lhs_g);
  CheckSide(golden, check, "dlhs_rhs", gradients.lhs_other);
  CheckSide(golden, check, "drhs_g", gradients.rhs_g);
  CheckSide(golden, check, "drhs_lhs", gradients.rhs_other);
  if (gradients.lhs_noise) check.Output("noise_dlhs_g", *gradients.lhs_noise);
  if (gradients.rhs_noise) check.Output("noise_drhs_g", *gradients.rhs_noise);
}

// config_v3 stands here for MaxText's int8 recipe: 8 bits everywhere, float weight gradient.
quant::AqtConfig FreezeConfig(const GoldenCase& golden) {
  const quant::AqtNumerics lhs = BitsArg(golden.Arg("lhs_bits")), rhs = BitsArg(golden.Arg("rhs_bits"));
  if (golden.Arg("maker") == "dot_general_make") return quant::AqtDotGeneralMake(lhs, rhs);
  if (golden.Arg("maker") != "config_v3") ThrowFile("args: maker {} is not known", golden.Arg("maker").dump());
  return quant::AqtConfigV3({rhs, rhs, quant::AqtNumerics::None()}, quant::AqtNoise::kNone, std::nullopt);
}

void RunFreeze(const GoldenCase& golden, ThreadPool& pool, GoldenCheck& check) {
  ExpectKeys(golden.Field("args"), {"maker", "lhs_bits", "rhs_bits", "tile_size", "dimension_numbers"});
  const GoldenRun run(golden, pool);
  const DotDims dims = DotDimsArg(golden.Arg("dimension_numbers"));
  quant::AqtConfig config = FreezeConfig(golden);
  if (golden.Arg("tile_size").is_number_integer()) config.tile = golden.Arg("tile_size").get<int64_t>();
  const Tensor lhs = golden.Input("lhs"), rhs = golden.Input("rhs");
  const auto forward = quant::AqtDotGeneral(run.run(), lhs, rhs, dims, config);
  const auto gradients = quant::AqtDotGeneralBackward(run.run(), forward.residuals, config, golden.Input("g"));
  const QArray frozen = quant::AqtFreeze(run.run(), rhs, dims, config);
  const Tensor served = quant::AqtServe(run.run(), lhs, frozen, dims, config);
  CheckArray(golden, check, "frozen", frozen);
  check.Output("out_train", forward.out);
  check.Output("out_convert", forward.out);
  check.Output("out_serve", served);
  check.Output("dlhs", gradients.lhs);
  check.Output("drhs", gradients.rhs);
}

}  // namespace

std::vector<GoldenKind> AqtKinds() {
  return {{"AQT dot_general", IsDot, RunDot}, {"AQT frozen weight", IsFreeze, RunFreeze}};
}

}  // namespace octavo
