// Updates parameters from gradients: AdamW, adam_pax (PaxML's) and SGD. Owns the moments and counts the steps; rates
// come from schedule.h, clipping factors from clipping.h. Its state is a list of named tensors that a checkpoint keeps
// ("opt/count", "opt/mu/<name>", "opt/nu/<name>"). Running state of recipes is not its business and never seen here.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "octavo/base/function_ref.h"
#include "octavo/base/thread_pool.h"
#include "octavo/kernels/isa.h"
#include "octavo/ops/parameter.h"
#include "octavo/optim/gradient_tree.h"

namespace octavo::optim {

enum class OptimizerKind : uint8_t { kAdamW, kAdamPax, kSgd };

// opt_type=…; an unknown or not supported name is a usage error that lists the known ones.
OptimizerKind OptimizerByName(std::string_view name);

struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, epsilon_root = 0, weight_decay = 0.1;
  // adamw_mask: a parameter whose name one of these expressions matches anywhere has no weight decay.
  std::vector<std::string> no_decay = {};
};

using NamedTensor = std::pair<std::string, Tensor>;

class Optimizer {
 public:
  // `parameters` must outlive the optimizer; all are f32. An expression that does not compile, or matches no
  // parameter, is a usage error.
  Optimizer(const OptimizerConfig& config, std::span<ops::Parameter* const> parameters);

  // One step with the gradients times `grad_scale`. A parameter without a gradient has a gradient of zero: its moments
  // fade and its weights decay.
  // `squares` says where the ChunkSums of each updated parameter go, taken while it is in the cache; null: nowhere.
  void Step(ThreadPool& pool, kernels::Isa isa, const Gradients& gradients, double rate, double grad_scale,
            FunctionRef<double*(size_t)> squares);
  void Step(ThreadPool& pool, kernels::Isa isa, const Gradients& gradients, double rate, double grad_scale) {
    Step(pool, isa, gradients, rate, grad_scale, [](size_t) -> double* { return nullptr; });
  }

  int64_t count() const { return count_; }  // steps made
  bool Decays(size_t parameter) const { return decays_[parameter]; }

  // The state as it is; the moments are the live tensors, so copy before the next step.
  std::vector<NamedTensor> State() const;
  // Takes over a saved state. Anything missing, superfluous or of another shape is one file error that lists all.
  void Restore(const std::map<std::string, Tensor>& state);

 private:
  OptimizerConfig config_;
  std::vector<ops::Parameter*> parameters_;
  std::vector<bool> decays_;
  std::vector<Tensor> moment1_, moment2_;  // empty for SGD
  int64_t count_ = 0;
};

}  // namespace octavo::optim
