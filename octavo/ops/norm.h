// RMS norm and layer norm over the last axis, with gradients (kernels/norm.h has the formulas). The product with the
// scale is the einsum site of the module, as in the reference; it is computed inside the norm.
#pragma once

#include "octavo/ops/context.h"
#include "octavo/ops/parameter.h"
#include "octavo/ops/var.h"

namespace octavo::ops {

struct NormOptions {
  double epsilon = 1e-6;
  bool layer = false;       // subtract the mean
  double scale_offset = 0;  // 1 for models that store the scale less one
};

// `scale` and `bias` are [last axis] or null. bf16 rows are normalized in f32, rounded, and then multiplied by the
// scale rounded to bf16, as the reference does.
Var Norm(Context& context, const Var& x, const Parameter* scale, const Parameter* bias, const NormOptions& options);

}  // namespace octavo::ops
