// Norms as modules: a scale, perhaps a bias, and the path they stand at.
#pragma once

#include <string>
#include <string_view>

#include "octavo/nn/parameters.h"
#include "octavo/ops/context.h"
#include "octavo/ops/norm.h"
#include "octavo/ops/var.h"

namespace octavo::nn {

class Norm {
 public:
  // RMS norm with a scale that starts at one.
  static Norm Rms(const Builder& builder, std::string_view name, int64_t width, double epsilon, bool with_scale = true);
  // Layer norm of gpt3: (x - mean) * inv * (scale + 1) + bias, both starting at zero.
  static Norm Layer(const Builder& builder, std::string_view name, int64_t width, double epsilon);

  ops::Var operator()(ops::Context& context, const ops::Var& x) const;  // over the last axis

 private:
  Norm(std::string_view name, const ops::NormOptions& options) : name_(name), options_(options) {}

  std::string name_;
  ops::NormOptions options_;
  ops::Parameter* scale_ = nullptr;
  ops::Parameter* bias_ = nullptr;
};

}  // namespace octavo::nn
