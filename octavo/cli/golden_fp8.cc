// Kinds of cases about fp8 with delayed scaling: flax's dot ops over several steps, compute_scale, quantize.
#include <charconv>
#include <nlohmann/json.hpp>

#include "octavo/base/error.h"
#include "octavo/cli/golden.h"
#include "octavo/cli/golden_quant.h"
#include "octavo/quant/einsum.h"
#include "octavo/quant/fp8_delayed.h"

namespace octavo {
namespace {

using Json = nlohmann::json;

bool IsSteps(const GoldenCase& golden) {
  return golden.call().starts_with("flax.linen.fp8_ops.") && golden.Arg("steps").is_number_integer();
}
bool IsScale(const GoldenCase& golden) { return golden.call().starts_with("fp8_ops.compute_scale("); }
bool IsQuantize(const GoldenCase& golden) { return golden.call().starts_with("fp8_ops.quantize("); }

// The op's class stands in the call, "flax.linen.fp8_ops.NAME(amax_history_length=N)…".
quant::Fp8DotConfig ConfigOf(const GoldenCase& golden) {
  const std::string name = Between(golden.call(), "fp8_ops.", "(").value_or("");
  quant::Fp8DotConfig config;
  if (name == "Fp8DirectDotGeneralOp" || name == "Fp8DotGeneral" || name == "Fp8Einsum") return config;
  config.form = quant::Fp8DotForm::kQdq;
  if (name == "Fp8DotGeneralOp") return config;
  if (name != "NANOOFp8DotGeneralOp") ThrowFile("the fp8 op '{}' is not known", name);
  config.forward = Format::kF8E4M3FNUZ;
  config.gradient = Format::kF8E5M2FNUZ;
  return config;
}

int64_t HistoryOf(const GoldenCase& golden) {
  const std::string digits = Between(golden.call(), "amax_history_length=", ")").value_or("");
  int64_t length = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), length);
  if (error != std::errc() || end != digits.data() + digits.size()) ThrowFile("the call has no amax_history_length");
  return length;
}

DotDims DimsOf(const GoldenCase& golden) {
  const Json& equation = golden.Arg("equation");
  if (!equation.is_string()) return DotDimsArg(golden.Arg("dimension_numbers"));
  const quant::EinsumEquation parsed = quant::ParseEinsum(equation.get<std::string>());
  if (parsed.terms.size() != 2) ThrowFile("args: the equation has not two operands");
  const quant::EinsumDot dot = quant::EinsumAsDot(parsed.terms[0], parsed.terms[1], parsed.output);
  for (size_t i = 0; i < dot.order.size(); ++i) {
    if (dot.order[i] != static_cast<int>(i)) ThrowFile("args: the equation transposes its result");
  }
  return dot.dims;
}

void CheckMeta(GoldenCheck& check, const std::string& name, int step, const quant::Fp8Meta& meta) {
  check.Output(fmt::format("{}_scale{}", name, step), meta.scale);
  check.Output(fmt::format("{}_amax_history{}", name, step), meta.amax_history);
}

void RunSteps(const GoldenCase& golden, ThreadPool& pool, GoldenCheck& check) {
  ExpectKeys(golden.Field("args"), {"dimension_numbers", "equation", "steps"});
  const GoldenRun run(golden, pool);
  const quant::Fp8DotConfig config = ConfigOf(golden);
  const DotDims dims = DimsOf(golden);
  quant::Fp8DotState state = quant::InitialFp8DotState(HistoryOf(golden));
  const auto steps = golden.Arg("steps").get<int>();
  for (int step = 0; step < steps; ++step) {
    const Tensor x = golden.Input(fmt::format("x{}", step)), k = golden.Input(fmt::format("k{}", step));
    const auto forward = quant::Fp8Dot(run.run(), x, k, dims, state, config);
    const auto gradients =
        quant::Fp8DotBackward(run.run(), forward, state, config, golden.Input(fmt::format("g{}", step)));
    state = {forward.input, forward.kernel, gradients.output_grad};
    check.Output(fmt::format("y{}", step), forward.out);
    check.Output(fmt::format("dx{}", step), gradients.x);
    check.Output(fmt::format("dk{}", step), gradients.kernel);
    CheckMeta(check, "input", step, state.input);
    CheckMeta(check, "kernel", step, state.kernel);
    CheckMeta(check, "output_grad", step, state.output_grad);
  }
}

void RunScale(const GoldenCase& golden, ThreadPool&, GoldenCheck& check) {
  ExpectKeys(golden.Field("args"), {"fp8_max"});
  if (!golden.Arg("fp8_max").is_number()) ThrowFile("args: fp8_max is not a number");
  const Tensor amax = golden.Input("amax"), scale = golden.Input("scale");
  const auto a = amax.ToVector<float>(), s = scale.BroadcastTo(amax.shape()).ToVector<float>();
  std::vector<float> result;
  for (size_t i = 0; i < a.size(); ++i) {
    result.push_back(quant::Fp8ScaleFromAmax(a[i], s[i], golden.Arg("fp8_max").get<float>()));
  }
  check.Output("new_scale", Tensor::FromValues(amax.shape(), DType::kF32, result));
}

void RunQuantize(const GoldenCase& golden, ThreadPool& pool, GoldenCheck& check) {
  const GoldenRun run(golden, pool);
  ExpectKeys(golden.Field("args"), {"q"});
  const auto format = FormatArg(golden.Field("args"), "q");
  if (!format) ThrowFile("args: q is missing");
  const Tensor x = golden.Input("x"), scale = golden.Input("scale");
  if (scale.dtype() != DType::kF32 || scale.size() != 1) ThrowFile("scale is {}, expected one f32", scale.ToString());
  const float factor = scale.ToVector<float>()[0];
  const quant::Codes codes = quant::QuantizeFp8(run.run(), x, *format, factor);
  const Tensor back = quant::DequantizeFp8(codes, factor, x.dtype());
  check.Output("q", codes.values);
  check.Output("dq", back);
  check.Output("qdq", back);
}

}  // namespace

std::vector<GoldenKind> Fp8Kinds() {
  return {{"flax fp8 steps", IsSteps, RunSteps},
          {"flax compute_scale", IsScale, RunScale},
          {"flax quantize", IsQuantize, RunQuantize}};
}

}  // namespace octavo
