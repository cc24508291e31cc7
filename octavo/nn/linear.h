// A projection: one dot_general site named after the module, with a kernel of any axes and perhaps a bias. Contracts
// the last axes of its input. Used by every block.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/nn/parameters.h"
#include "octavo/ops/context.h"
#include "octavo/ops/var.h"

namespace octavo::nn {

struct LinearOptions {
  bool bias = false;
  std::string_view save_name = "";  // under which remat may keep the output; the caller's string must live on
};

class Linear {
 public:
  // kernel [in..., out...], bias [out...]. `init` is of the kernel; biases start at zero.
  Linear(const Builder& builder, std::string_view name, const Shape& in, const Shape& out, const Init& init,
         const LinearOptions& options = {});

  ops::Var operator()(ops::Context& context, const ops::Var& x) const;  // x [..., in...] -> [..., out...]

  const ops::Parameter& kernel() const { return *kernel_; }

  // Several projections of one input, each as if it was called alone; served weights are read in one go.
  static std::vector<ops::Var> Each(ops::Context& context, const ops::Var& x, std::span<const Linear* const> layers);

 private:
  std::string name_;
  int contracted_;
  LinearOptions options_;
  ops::Parameter* kernel_;
  ops::Parameter* bias_ = nullptr;
};

// The usual kernel: truncated normal with variance scale / fan-in, the fan being the product of the input axes.
Init DenseInit(const Shape& in, double scale = 1);

}  // namespace octavo::nn
