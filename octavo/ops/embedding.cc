#include "octavo/ops/embedding.h"

#include <utility>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/kernels/embedding.h"
#include "octavo/ops/dot.h"
#include "octavo/ops/elementwise.h"
#include "octavo/ops/op_support.h"
#include "octavo/ops/profile.h"
#include "octavo/ops/tape.h"

namespace octavo::ops {
namespace {

void CheckIds(const Context& context, const Parameter& table, const Tensor& ids) {
  if (ids.dtype() != DType::kI32) {
    ThrowUsage("Embedding at {}: ids are {}, expected i32", context.path(), ids.ToString());
  }
  if (ids.is_meta()) return;
  const Tensor packed = ids.Contiguous();
  const auto values = packed.Values<int32_t>();
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] < 0 || values[i] >= table.shape()[0]) {
      ThrowUsage("Embedding at {}: id {} at place {}, but {} has {} rows", context.path(), values[i], i, table.name,
                 table.shape()[0]);
    }
  }
}

void AnnounceSite(Context& context, const Parameter& parameter, const Var& table, const Tensor& ids, DType dtype) {
  const Site site = context.NextSite(OpKind::kDotGeneral);
  if (context.interceptor == nullptr) return;
  std::vector<int64_t> dims(ids.shape().dims().begin(), ids.shape().dims().end());
  dims.push_back(table.value.dim(0));
  const Operand one_hot{Tensor::Meta(Shape(dims), dtype), Role::kActivation, nullptr, kConstant};
  const Operand weight{table.value, Role::kWeight, &parameter, table.node};
  const DotDims contract{{static_cast<int>(dims.size()) - 1}, {0}, {}, {}};
  context.interceptor->Fused(context, DotCall{site, one_hot, weight, contract, ""});
}

}  // namespace

Var Embedding(Context& context, const Parameter& parameter, const Tensor& ids, DType dtype, bool as_product) {
  CheckIds(context, parameter, ids);
  const Var table = ParameterAs(context, parameter, parameter.tensor().dtype());
  if (as_product) AnnounceSite(context, parameter, table, ids, dtype);
  std::vector<int64_t> dims(ids.shape().dims().begin(), ids.shape().dims().end());
  dims.push_back(table.value.dim(1));
  const Shape shape(dims);
  if (ids.is_meta() || table.value.is_meta()) return RecordOutput(context, Tensor::Meta(shape, dtype), {table.node});
  const Tensor packed = ids.Contiguous();
  Tensor out = Tensor::Empty(shape, dtype);
  {
    const Timed timed(context.profile, context.path(), "embedding", "forward");
    const RowsOfTensor rows = AsRows(table.value);
    kernels::GatherRows(context.pool, context.isa, {rows.rows, packed.Data<int32_t>(), MutRowsOf(out)});
  }
  if (context.tape == nullptr) return Var(std::move(out));
  return context.tape->Record(
      std::move(out), {table.node},
      [packed, table_shape = table.shape(), table_dtype = table.dtype(), starts = StartsFor(context, packed.size()),
       path = context.path()](Context& back, const Tensor& grad) {
        const Timed timed(back.profile, path, "embedding", "backward");
        Tensor sum = Tensor::Zeros(table_shape, DType::kF32);
        const RowsOfTensor rows = AsRows(grad);
        kernels::ScatterArgs args;
        args.grad_y = rows.rows;
        args.id = packed.Data<int32_t>();
        args.sequences = SequencesOf(starts);
        args.grad_table = MutRowsOf(sum);
        kernels::ScatterAddRows(back.pool, back.isa, args);
        return std::vector<Tensor>{CastTensor(back, sum, table_dtype)};
      });
}

}  // namespace octavo::ops
