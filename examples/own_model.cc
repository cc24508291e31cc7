// Three rules, written outside the model, decide how each matmul of an unmodified model is quantized, forward and
// backward.
#include "octavo/ops/add.h"
#include "octavo/ops/dot.h"
#include "octavo/ops/tape.h"
#include "octavo/quant/provider.h"

using namespace octavo;

int main() {
  const ops::Parameter up{"up", Tensor::Zeros({256, 512}, DType::kF32)},
      down{"down", Tensor::Zeros({512, 256}, DType::kF32)}, head{"head", Tensor::Zeros({256, 100}, DType::kF32)};
  const auto project = [](ops::Context& context, const ops::Parameter& kernel, const ops::Var& x) {
    const ops::Scope scope(context, kernel.name);
    return ops::Project(context, x, kernel);
  };
  const auto model = [&](ops::Context& context, const ops::Var& x) {  // knows nothing of quantization
    return project(context, head, project(context, down, ops::Relu(context, project(context, up, x))));
  };
  const quant::RuleSet rules(quant::ParseRules(Yaml::Parse(R"(
- {module_path: up, weight_qtype: int8, act_qtype: int8, bwd_qtype: int8}
- {module_path: down, weight_qtype: float8_e4m3fn, act_qtype: float8_e4m3fn, bwd_qtype: float8_e5m2}
- {module_path: head}  # stays in float)",
                                                           "rules")));
  const auto dry_run = [&](ops::Context& context) { model(context, Tensor::Meta({8, 256}, DType::kF32)); };
  const quant::Plan plan = quant::MakePlan(dry_run, rules);
  fmt::print("{}", quant::PlanTable(plan));

  ThreadPool pool(ChooseThreads(0));
  kernels::Workspace workspace;
  ops::Context context(pool, kernels::ChooseIsa().isa, workspace);
  quant::Provider provider(plan);
  ops::Tape tape;
  context.interceptor = &provider;
  context.tape = &tape;
  const ops::Var out = model(context, Tensor::Zeros({8, 256}, DType::kF32));
  tape.Run(context, out, Tensor::Zeros(out.shape(), DType::kF32));
  fmt::print("gradient of up {}\n", tape.Grad(up).ToString());
}
