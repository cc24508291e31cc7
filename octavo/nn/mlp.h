// The MLP of a layer: wi (one activation), wi_0 and wi_1 (a gate and its factor), or one fused wi; then wo. Also the
// shared experts of mixture models and the dense layers of deepseek.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/nn/linear.h"
#include "octavo/nn/norm.h"

namespace octavo::nn {

struct MlpOptions {
  int64_t emb_dim = 0, mlp_dim = 0;
  std::vector<std::string> activations = {"silu", "linear"};  // of one or two branches that are multiplied
  double activations_limit = -1;                              // > 0: branches are clipped there first
  bool fused = false;                                         // one kernel [E, branches, F]
  bool bias = false;
  double dropout_rate = 0;
  Init::Law law = Init::Law::kTruncatedNormal;
  double init_scale = 1;
  std::optional<double> layer_norm_epsilon;  // gpt3: a layer norm of its own before it, mlp_layer_norm
};

class Mlp {
 public:
  Mlp(const Builder& builder, std::string_view name, const MlpOptions& options);
  ops::Var operator()(ops::Context& context, const ops::Var& x) const;  // [..., E] -> [..., E]

 private:
  ops::Var Branches(ops::Context& context, const ops::Var& x) const;

  std::string name_;
  MlpOptions options_;
  std::optional<Norm> norm_;
  std::vector<Linear> in_;
  std::optional<Linear> out_;
};

}  // namespace octavo::nn
