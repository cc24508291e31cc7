#include "octavo/nn/mlp.h"

#include "octavo/base/error.h"
#include "octavo/ops/activation.h"
#include "octavo/ops/elementwise.h"
#include "octavo/ops/slice.h"

namespace octavo::nn {
namespace {

constexpr std::string_view kSaveNames[] = {"mlpwi_0", "mlpwi_1"};

}  // namespace

Mlp::Mlp(const Builder& builder, std::string_view name, const MlpOptions& options) : name_(name), options_(options) {
  const size_t branches = options.activations.size();
  if (branches < 1 || branches > 2) {
    ThrowUsage("mlp_activations names {} activations, expected one, or two that are multiplied", branches);
  }
  const Builder own = builder.Child(name);
  if (options.layer_norm_epsilon) {
    norm_ = Norm::Layer(own, "mlp_layer_norm", options.emb_dim, *options.layer_norm_epsilon);
  }
  const auto init = [&](int64_t fan_in) { return Init{options.law, fan_in, options.init_scale}; };
  const Shape in{options.emb_dim};
  if (branches == 1) {
    in_.emplace_back(own, "wi", in, Shape{options.mlp_dim}, init(options.emb_dim),
                     LinearOptions{options.bias, "mlpwi"});
  } else if (options.fused) {
    in_.emplace_back(own, "wi", in, Shape{2, options.mlp_dim}, init(options.emb_dim),
                     LinearOptions{options.bias, "mlpwi"});
  } else {
    for (size_t i = 0; i < branches; ++i) {
      in_.emplace_back(own, i == 0 ? "wi_0" : "wi_1", in, Shape{options.mlp_dim}, init(options.emb_dim),
                       LinearOptions{options.bias, kSaveNames[i]});
    }
  }
  out_.emplace(own, "wo", Shape{options.mlp_dim}, Shape{options.emb_dim}, init(options.mlp_dim),
               LinearOptions{options.bias, "mlpwo"});
}

ops::Var Mlp::Branches(ops::Context& context, const ops::Var& x) const {
  if (options_.activations.size() == 1) {
    return ops::Activate(context, in_[0](context, x), ops::ActivationByName(options_.activations[0]));
  }
  std::vector<ops::Var> parts;
  if (options_.fused) {
    const ops::Var both = in_[0](context, x);
    parts = ops::Unbind(context, both, both.value.rank() - 2);
  } else {
    const Linear* const layers[] = {&in_[0], &in_[1]};
    parts = Linear::Each(context, x, layers);
  }
  // The product does not care which branch is the plain one.
  const bool second = options_.activations[1] == "linear";
  const ops::Var &gate = second ? parts[0] : parts[1], &up = second ? parts[1] : parts[0];
  if (!second && options_.activations[0] != "linear") {
    ThrowUsage("mlp_activations: {} times {}: one of the two must be linear", options_.activations[0],
               options_.activations[1]);
  }
  kernels::GateSpec spec;
  spec.activation = ops::ActivationByName(options_.activations[second ? 0 : 1]);
  if (options_.activations_limit > 0) spec.limit = static_cast<float>(options_.activations_limit);
  return ops::Gate(context, gate, up, spec);
}

ops::Var Mlp::operator()(ops::Context& context, const ops::Var& x) const {
  const ops::Scope scope(context, name_);
  const ops::Var normed = norm_ ? (*norm_)(context, x) : x;
  const ops::Var hidden = ops::Dropout(context, Branches(context, normed), options_.dropout_rate);
  return (*out_)(context, hidden);
}

}  // namespace octavo::nn
