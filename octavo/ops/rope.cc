#include "octavo/ops/rope.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/kernels/rope.h"
#include "octavo/ops/elementwise.h"
#include "octavo/ops/op_support.h"
#include "octavo/ops/profile.h"
#include "octavo/ops/tape.h"

namespace octavo::ops {
namespace {

struct RopeCall {
  kernels::RopeLayout layout;
  int64_t rotary_dim;
  Tensor position;
  RopeTable::Values table;
};

// Heads may lie apart; only the features of one must be together.
Tensor WithContiguousHeads(const Tensor& x) {
  const bool good = x.dim(3) <= 1 || x.stride(3) == 1;
  const bool one_stride = x.dim(0) <= 1 || x.dim(1) <= 1 || x.stride(0) == x.stride(1) * x.dim(1);
  return good && one_stride ? x : x.Contiguous();
}

Tensor Rotate(Context& context, const RopeCall& call, const Tensor& input, kernels::RopeDirection direction) {
  const Tensor x = WithContiguousHeads(input);
  Tensor out = Tensor::Empty(x.shape(), x.dtype());
  kernels::RopeArgs args;
  args.direction = direction;
  args.layout = call.layout;
  args.dtype = x.dtype();
  args.tokens = x.dim(0) * x.dim(1);
  args.heads = x.dim(2);
  args.head_dim = x.dim(3);
  args.rotary_dim = call.rotary_dim;
  args.in = DataOf(x);
  args.in_token_stride = x.dim(1) > 1 ? x.stride(1) : x.stride(0);
  args.in_head_stride = x.stride(2);
  args.out = MutDataOf(out);
  args.out_token_stride = x.dim(2) * x.dim(3);
  args.out_head_stride = x.dim(3);
  args.position = call.position.Data<int32_t>();
  args.cos = call.table.cos.Data<float>();
  args.sin = call.table.sin.Data<float>();
  args.table_rows = call.table.cos.dim(0);
  kernels::Rope(context.pool, context.isa, args);
  return out;
}

}  // namespace

const RopeTable::Values& RopeTable::For(Context& context, const Rows& rows) {
  int32_t highest = 0;
  for (int32_t position : rows.position.Values<int32_t>()) highest = std::max(highest, position);
  const int64_t have = values_.cos.defined() ? values_.cos.dim(0) : 0;
  if (highest < have) return values_;
  int64_t count = std::max<int64_t>(64, have);
  while (count <= highest) count *= 2;
  Values grown{Tensor::Empty({count, rotary_dim_ / 2}, DType::kF32),
               Tensor::Empty({count, rotary_dim_ / 2}, DType::kF32)};
  kernels::FillRopeTable(context.pool, context.isa, frequencies_, 0, count, grown.cos.MutableData<float>(),
                         grown.sin.MutableData<float>());
  values_ = std::move(grown);
  return values_;
}

Var Rope(Context& context, const Var& x, const Rows& rows, RopeTable& table, kernels::RopeLayout layout) {
  CheckFloat("Rope", x.value);
  if (x.value.rank() != 4 || x.value.dim(0) * x.value.dim(1) != rows.tokens() || table.rotary_dim() > x.value.dim(3)) {
    ThrowUsage("Rope at {}: x is {}, expected [B, T, heads, head_dim] with {} tokens and at least {} features",
               context.path(), x.shape(), rows.tokens(), table.rotary_dim());
  }
  if (x.value.is_meta()) return RecordOutput(context, Tensor::Meta(x.shape(), x.dtype()), {x.node});
  const Timed timed(context.profile, context.path(), "rope", "forward");
  const RopeCall call{layout, table.rotary_dim(), rows.position, table.For(context, rows)};
  Tensor out = Rotate(context, call, x.value, kernels::RopeDirection::kForward);
  if (context.tape == nullptr) return Var(std::move(out));
  return context.tape->Record(std::move(out), {x.node},
                              [call, path = context.path()](Context& back, const Tensor& grad) {
                                const Timed time(back.profile, path, "rope", "backward");
                                return std::vector<Tensor>{Rotate(back, call, grad, kernels::RopeDirection::kBackward)};
                              });
}

}  // namespace octavo::ops
