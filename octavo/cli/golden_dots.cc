// Kinds of cases about dots: Qwix's dot_general, einsum and ragged_dot.
#include <nlohmann/json.hpp>

#include "octavo/base/error.h"
#include "octavo/cli/golden.h"
#include "octavo/cli/golden_quant.h"
#include "octavo/quant/dot.h"
#include "octavo/quant/dot_axes.h"
#include "octavo/quant/einsum.h"
#include "octavo/quant/quantize.h"
#include "octavo/quant/ragged_dot.h"

namespace octavo {
namespace {

using Json = nlohmann::json;

bool IsDot(const GoldenCase& golden) { return golden.call().starts_with("dot_general.dot_general"); }
bool IsEinsum(const GoldenCase& golden) { return golden.call().starts_with("einsum.einsum"); }
bool IsRagged(const GoldenCase& golden) { return golden.call().starts_with("ragged_dot.ragged_dot"); }

quant::DotOperand Quantized(const Tensor& array, std::optional<Format> format, quant::Granularity granularity,
                            const quant::Calibration& calibration, const quant::Arithmetic& arithmetic) {
  if (!format) return array;
  return quant::Quantize(array, {*format, std::move(granularity), calibration}, nullptr, arithmetic);
}

void CheckOperand(const GoldenCase& golden, GoldenCheck& check, const std::string& name,
                  const quant::DotOperand& operand) {
  if (const auto* array = std::get_if<QArray>(&operand)) CheckArray(golden, check, name, *array);
}

struct Operands {
  quant::DotOperand lhs, rhs;
};
Operands DotOperands(const GoldenCase& golden, const DotDims& dims, const quant::Arithmetic& arithmetic) {
  const Json& args = golden.Field("args");
  const auto tile = TileArg(args, "tile_size");
  const Tensor lhs = golden.Input("lhs"), rhs = golden.Input("rhs");
  return {Quantized(lhs, FormatArg(args, "lhs_qtype"), quant::LeftGranularity(lhs.shape(), dims, tile),
                    CalibrationArg(args, "lhs_method"), arithmetic),
          Quantized(rhs, FormatArg(args, "rhs_qtype"), quant::RightGranularity(rhs.shape(), dims, tile),
                    CalibrationArg(args, "rhs_method"), arithmetic)};
}

void RunDot(const GoldenCase& golden, ThreadPool& pool, GoldenCheck& check) {
  ExpectKeys(golden.Field("args"), {"lhs_qtype", "rhs_qtype", "tile_size", "lhs_method", "rhs_method",
                                    "dimension_numbers", "preferred_element_type"});
  const GoldenRun run(golden, pool);
  const DotDims dims = DotDimsArg(golden.Arg("dimension_numbers"));
  const auto preferred = DTypeArg(golden.Arg("preferred_element_type"));
  if (golden.error()) {
    check.ExpectError([&] {
      const Operands operands = DotOperands(golden, dims, run.arithmetic());
      quant::DotGeneral(run.run(), operands.lhs, operands.rhs, dims, preferred);
    });
    return;
  }
  const Operands operands = DotOperands(golden, dims, run.arithmetic());
  const quant::DotOperand &lhs = operands.lhs, &rhs = operands.rhs;
  CheckOperand(golden, check, "lhs", lhs);
  CheckOperand(golden, check, "rhs", rhs);
  CheckOutput(golden, check, "out", quant::DotGeneral(run.run(), lhs, rhs, dims, preferred));
  const auto path = [&](const std::string& name, auto function) {
    if (golden.HasOutput(name) && !check.IsInformation(name)) {
      CheckOutput(golden, check, name, function(run.run(), lhs, rhs, dims, preferred));
    }
  };
  path("out_slow", quant::SlowDot);
  path("out_fast", quant::FastDot);
  path("out_loop", quant::LoopDot);
}

void RunEinsum(const GoldenCase& golden, ThreadPool& pool, GoldenCheck& check) {
  const Json& args = golden.Field("args");
  ExpectKeys(args, {"equation", "lhs_qtype", "rhs_qtype", "tile_size", "lhs_how", "rhs_how"});
  const GoldenRun run(golden, pool);
  if (!golden.Arg("equation").is_string()) ThrowFile("args: equation is missing");
  const std::string text = golden.Arg("equation").get<std::string>();
  const quant::EinsumEquation equation = quant::ParseEinsum(text);
  std::vector<quant::DotOperand> operands;
  for (const std::string name : {"lhs", "rhs"}) {
    const Json& how = golden.Arg(name + "_how");
    quant::Granularity granularity = quant::EinsumGranularity(equation, operands.size(), TileArg(args, "tile_size"));
    const auto calibration = how.is_object() ? CalibrationArg(how, "calibration_method") : quant::Calibration{};
    operands.push_back(Quantized(golden.Input(name), FormatArg(args, name + "_qtype"), std::move(granularity),
                                 calibration, run.arithmetic()));
    CheckOperand(golden, check, name, operands.back());
  }
  CheckOutput(golden, check, "out", quant::Einsum(run.run(), text, operands));
}

std::vector<int64_t> GroupSizes(const GoldenCase& golden) {
  const Tensor sizes = golden.Input("group_sizes");
  if (sizes.dtype() != DType::kI32) ThrowFile("group_sizes are {}, expected i32", sizes.ToString());
  std::vector<int64_t> result;
  for (int32_t size : sizes.ToVector<int32_t>()) result.push_back(size);
  return result;
}

void RunRagged(const GoldenCase& golden, ThreadPool& pool, GoldenCheck& check) {
  const Json& args = golden.Field("args");
  ExpectKeys(args, {"lhs_qtype", "rhs_qtype", "lhs_channelwise", "rhs_channelwise", "tile"});
  const GoldenRun run(golden, pool);
  const auto operand = [&](const std::string& name) {
    quant::Granularity granularity;
    const Json& axes = golden.Arg(name + "_channelwise");
    if (!axes.is_null()) granularity.channelwise_axes = AxesArg(axes);
    if (const auto tile = TileArg(args, "tile")) granularity.tiled_axes[1] = *tile;  // K is axis 1 of both
    return Quantized(golden.Input(name), FormatArg(args, name + "_qtype"), std::move(granularity), {},
                     run.arithmetic());
  };
  const quant::DotOperand lhs = operand("lhs"), rhs = operand("rhs");
  CheckOperand(golden, check, "lhs", lhs);
  CheckOperand(golden, check, "rhs", rhs);
  CheckOutput(golden, check, "out", quant::RaggedDot(run.run(), lhs, rhs, GroupSizes(golden)));
}

}  // namespace

std::vector<GoldenKind> DotKinds() {
  return {{"qwix dot_general", IsDot, RunDot},
          {"qwix einsum", IsEinsum, RunEinsum},
          {"qwix ragged_dot", IsRagged, RunRagged}};
}

}  // namespace octavo
