// Kinds of cases about quantized arrays: Qwix's calibrate, scale and zero point, quantize, dequantize.
#include <nlohmann/json.hpp>

#include "octavo/cli/golden.h"
#include "octavo/cli/golden_quant.h"
#include "octavo/quant/quantize.h"

namespace octavo {
namespace {

bool IsArray(const GoldenCase& golden) {
  return golden.call().starts_with("qarray.") && golden.Arg("how").is_object() && golden.HasInput("x");
}

void RunArray(const GoldenCase& golden, ThreadPool& pool, GoldenCheck& check) {
  ExpectKeys(golden.Field("args"), {"how"});
  const GoldenRun run(golden, pool);
  const Tensor x = golden.Input("x");
  if (golden.error()) {
    check.ExpectError([&] { quant::Quantize(x, HowArg(golden.Arg("how")), nullptr, run.arithmetic()); });
    return;
  }
  const quant::HowToQuantize how = HowArg(golden.Arg("how"));
  const quant::CalibrationRange range = quant::Calibrate(x, how, run.arithmetic());
  if (range.absmax) CheckOutput(golden, check, "calib_absmax", *range.absmax);
  if (range.min) CheckOutput(golden, check, "calib_min", *range.min);
  if (range.max) CheckOutput(golden, check, "calib_max", *range.max);
  const auto scale = quant::ComputeScale(range, how.format, run.arithmetic());
  const QArray array = quant::QuantizeWithScale(x, how.format, scale, nullptr, run.arithmetic());
  CheckArray(golden, check, "", array);
  CheckOutput(golden, check, "dequant", quant::Dequantize(array));
}

}  // namespace

std::vector<GoldenKind> ArrayKinds() { return {{"qwix qarray", IsArray, RunArray}}; }

}  // namespace octavo
