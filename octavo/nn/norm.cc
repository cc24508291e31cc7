#include "octavo/nn/norm.h"

namespace octavo::nn {

Norm Norm::Rms(const Builder& builder, std::string_view name, int64_t width, double epsilon, bool with_scale) {
  Norm norm(name, {epsilon, false, 0});
  if (with_scale) norm.scale_ = builder.Child(name).Make("scale", {width}, Init::Ones());
  return norm;
}

Norm Norm::Layer(const Builder& builder, std::string_view name, int64_t width, double epsilon) {
  Norm norm(name, {epsilon, true, 1});
  norm.scale_ = builder.Child(name).Make("scale", {width}, Init::Zeros());
  norm.bias_ = builder.Child(name).Make("bias", {width}, Init::Zeros());
  return norm;
}

ops::Var Norm::operator()(ops::Context& context, const ops::Var& x) const {
  const ops::Scope scope(context, name_);
  return ops::Norm(context, x, scale_, bias_, options_);
}

}  // namespace octavo::nn
