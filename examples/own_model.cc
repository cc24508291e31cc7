// Three rules, written outside the model, decide how each matmul of an unmodified model is quantized, forward and
// backward.
#include <fmt/format.h>

#include "octavo/ops/add.h"
#include "octavo/ops/dot.h"
#include "octavo/ops/tape.h"
#include "octavo/quant/provider.h"

using namespace octavo;

ops::Parameter MakeKernel(const char* name, int64_t in, int64_t out) {
  Tensor values = Tensor::Empty({in, out}, DType::kF32);
  for (int64_t i = 0; i < values.size(); ++i) values.MutableValues<float>()[i] = 0.05f * Normal(RngKey{1, 2}, i);
  return {name, values};
}

int main() {
  const ops::Parameter up = MakeKernel("up", 256, 512), down = MakeKernel("down", 512, 256),
                       head = MakeKernel("head", 256, 100);
  const auto model = [&](ops::Context& context, ops::Var x) {  // knows nothing of quantization
    const auto project = [&](const ops::Parameter& kernel, const ops::Var& input) {
      const ops::Scope scope(context, kernel.name);
      return ops::Project(context, input, kernel);
    };
    return project(head, project(down, ops::Relu(context, project(up, x))));
  };
  const quant::RuleSet rules(quant::ParseRules(Yaml::Parse(
      "- {module_path: up, weight_qtype: int8, act_qtype: int8, bwd_qtype: int8}\n"
      "- {module_path: down, weight_qtype: float8_e4m3fn, act_qtype: float8_e4m3fn, bwd_qtype: float8_e5m2}\n"
      "- {module_path: head}\n",
      "rules")));
  const quant::Plan plan = quant::MakePlan(
      [&](ops::Context& c) {
        model(c, Tensor::Meta({8, 256}, DType::kF32));
      },
      rules);
  fmt::print("{}", quant::PlanTable(plan));

  ThreadPool pool(ChooseThreads(0));
  kernels::Workspace workspace;
  ops::Context context(pool, kernels::ChooseIsa().isa, workspace);
  quant::Provider provider(plan);
  ops::Tape tape;
  context.interceptor = &provider, context.tape = &tape;
  const ops::Var out = model(context, Tensor::Zeros({8, 256}, DType::kF32));
  tape.Run(context, out, Tensor::Zeros({8, 100}, DType::kF32));
  fmt::print("out {}, gradient of up {}\n", out.value.ToString(), tape.Grad(up).ToString());
}
