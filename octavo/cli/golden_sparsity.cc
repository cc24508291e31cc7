// Kinds of cases about N:M sparsity masks, their schedule, and the formulas of quantized KV caches.
#include <nlohmann/json.hpp>

#include "octavo/base/error.h"
#include "octavo/cli/golden.h"
#include "octavo/cli/golden_quant.h"
#include "octavo/quant/kv_quant.h"
#include "octavo/quant/sparsity.h"

namespace octavo {
namespace {

bool IsMask(const GoldenCase& golden) { return golden.call() == "sparsity.get_sparsity_mask"; }
bool IsSchedule(const GoldenCase& golden) { return golden.call().starts_with("SparsityModule("); }
bool IsKv(const GoldenCase& golden) {
  return golden.HasInput("kv") && golden.HasOutput("amax") && golden.HasOutput("read_scale") &&
         golden.Arg("bound").is_number();
}

int64_t Number(const GoldenCase& golden, const char* key) {
  if (!golden.Arg(key).is_number_integer()) ThrowFile("args: {} is not a whole number", key);
  return golden.Arg(key).get<int64_t>();
}

void RunMask(const GoldenCase& golden, ThreadPool&, GoldenCheck& check) {
  ExpectKeys(golden.Field("args"), {"n_sparsity", "m_sparsity", "order", "block_size", "offset"});
  const Tensor x = golden.Input("x");
  const auto mask = [&] {
    quant::SparsityPattern pattern{Number(golden, "n_sparsity"), Number(golden, "m_sparsity")};
    const nlohmann::json& order = golden.Arg("order");
    if (order != "R" && order != "C") ThrowUsage("order {} is not R or C", order.dump());
    if (order == "C") pattern.order = quant::SparsityOrder::kSecondToLast;
    pattern.block = Number(golden, "block_size");
    pattern.offset = Number(golden, "offset");
    return quant::SparsityMask(x, pattern);
  };
  if (golden.error()) {
    check.ExpectError([&] { mask(); });
  } else {
    check.Output("mask", mask());
  }
}

void RunSchedule(const GoldenCase& golden, ThreadPool&, GoldenCheck& check) {
  ExpectKeys(golden.Field("args"), {"n", "m", "start_step", "update_step", "eval_mode"});
  const quant::SparsityPattern pattern{Number(golden, "n"), Number(golden, "m")};
  const quant::SparsitySchedule schedule{Number(golden, "start_step"), Number(golden, "update_step"),
                                         golden.Arg("eval_mode") == true};
  std::optional<quant::SparsityState> state;
  for (int step = 0; golden.HasInput(fmt::format("w{}", step)); ++step) {
    const Tensor weight = golden.Input(fmt::format("w{}", step));
    if (!state) state = quant::InitialSparsity(weight.shape());
    state = quant::NextSparsity(*state, weight, pattern, schedule);
    check.Output(fmt::format("w_out{}", step), quant::Pruned(weight, state->mask));
    check.Output(fmt::format("mask{}", step), state->mask);
    check.Output(fmt::format("step{}", step),
                 Tensor::FromValues<int32_t>({}, DType::kI32, std::vector<int32_t>{state->step}));
  }
}

void RunKv(const GoldenCase& golden, ThreadPool& pool, GoldenCheck& check) {
  ExpectKeys(golden.Field("args"), {"axes", "bound"});
  const GoldenRun run(golden, pool);
  const Tensor kv = golden.Input("kv");
  quant::KvQuant how;
  how.zero_guard = false;  // the formulas have none
  const auto bound = golden.Arg("bound").get<double>();
  how.format = bound == 127.5 ? Format::kInt8 : bound == 7.5 ? Format::kInt4 : Format::kF8E4M3FN;
  if (SymmetricBound(how.format) != static_cast<float>(bound)) ThrowFile("args: bound {} is not known", bound);
  const std::vector<int> axes = AxesArg(golden.Arg("axes"));
  const int last = kv.rank() - 1;
  if (axes == std::vector<int>{last}) {
    how.axes = quant::KvAxes::kDkv;
  } else if (axes == std::vector<int>{last - 1, last}) {
    how.axes = quant::KvAxes::kHeadsAndDkv;
  } else {
    ThrowFile("args: axes are neither the last nor the last two of {}", kv.shape());
  }
  const quant::QuantizedKv stored = quant::QuantizeKv(kv, how);
  check.Output("amax", stored.amax);
  check.Output("q", stored.codes);
  check.Output("read_scale", quant::KvReadScale(stored.amax, how, run.arithmetic()));
  check.Output("dequant", quant::DequantizeKv(stored, how, run.arithmetic()));
}

}  // namespace

std::vector<GoldenKind> SparsityKinds() {
  return {
      {"sparsity mask", IsMask, RunMask}, {"sparsity schedule", IsSchedule, RunSchedule}, {"kv cache", IsKv, RunKv}};
}

}  // namespace octavo
