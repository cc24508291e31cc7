// Rotary position embedding of heads, with its gradient (the rotation back). The table is made from integer positions
// in double and rounded once (kernels/rope_table.h); a model keeps one and all its layers read it.
#pragma once

#include <cstdint>

#include "octavo/kernels/rope_rows.h"
#include "octavo/kernels/rope_table.h"
#include "octavo/ops/context.h"
#include "octavo/ops/rows.h"
#include "octavo/ops/var.h"

namespace octavo::ops {

// Cosines and sines of positions 0 … as far as they have been asked for. Grows; rows never change. Not shared by
// threads that run models at the same time.
class RopeTable {
 public:
  explicit RopeTable(const kernels::RopeConfig& config)
      : frequencies_(kernels::MakeRopeFrequencies(config)), rotary_dim_(config.rotary_dim) {}

  struct Values {
    Tensor cos, sin;  // f32 [positions, rotary_dim / 2]
  };
  // At least for every position of `rows`.
  const Values& For(Context& context, const Rows& rows);
  int64_t rotary_dim() const { return rotary_dim_; }

 private:
  kernels::RopeFrequencies frequencies_;
  int64_t rotary_dim_;
  Values values_;
};

// x [B, T, heads, head_dim], the first rotary_dim features of each head turned by the positions of `rows`.
Var Rope(Context& context, const Var& x, const Rows& rows, RopeTable& table,
         kernels::RopeLayout layout = kernels::RopeLayout::kHalves);

}  // namespace octavo::ops
