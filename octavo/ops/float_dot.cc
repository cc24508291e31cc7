#include "octavo/ops/float_dot.h"

#include <vector>

#include "octavo/base/error.h"
#include "octavo/kernels/matmul_f32.h"

namespace octavo::ops {
namespace {

using kernels::FloatResult;
using kernels::FloatSource;
using kernels::Stored;

Stored StoredAs(std::string_view where, DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return Stored::kF32;
    case DType::kBF16:
      return Stored::kBF16;
    case DType::kF16:
      return Stored::kF16;
    default:
      ThrowUsage("{}: expected f32, bf16 or f16, found {}", where, NameOf(dtype));
  }
}

const std::byte* FirstElement(const Tensor& tensor) {
  if (tensor.dtype() == DType::kF32) return reinterpret_cast<const std::byte*>(tensor.Data<float>());
  return reinterpret_cast<const std::byte*>(tensor.Data<uint16_t>());
}

FloatSource Source(std::string_view where, const MatrixBatch& matrices, int64_t index) {
  FloatSource source;
  source.data = FirstElement(matrices.tensor) + index * matrices.batch_stride * SizeOf(matrices.tensor.dtype());
  source.stored = StoredAs(where, matrices.tensor.dtype());
  source.rows = matrices.rows;
  source.cols = matrices.cols;
  source.row_stride = matrices.row_stride;
  source.col_stride = matrices.col_stride;
  return source;
}

// A row-major [rows, cols] piece of a contiguous tensor, `offset` elements from its start.
FloatResult Result(std::string_view where, Tensor& tensor, int64_t offset, int64_t rows, int64_t cols) {
  FloatResult result;
  result.data = tensor.MutableRawData() + offset * SizeOf(tensor.dtype());
  result.stored = StoredAs(where, tensor.dtype());
  result.rows = rows;
  result.cols = cols;
  result.row_stride = cols;
  return result;
}

// Group sizes as row counts, cut off at `rows`: the sizes may promise more rows than there are.
std::vector<int64_t> GroupRows(std::string_view where, const Tensor& group_sizes, int64_t groups, int64_t rows) {
  if (group_sizes.dtype() != DType::kI32 || group_sizes.rank() != 1 || group_sizes.dim(0) != groups) {
    ThrowUsage("{}: group sizes are {}, expected i32[{}]", where, group_sizes.ToString(), groups);
  }
  std::vector<int64_t> result;
  int64_t left = rows;
  for (int32_t size : group_sizes.ToVector<int32_t>()) {
    if (size < 0) ThrowUsage("{}: a group has {} rows", where, size);
    result.push_back(std::min<int64_t>(size, left));
    left -= result.back();
  }
  return result;
}

void CheckRagged(std::string_view where, const Tensor& lhs, const Tensor& rhs) {
  if (lhs.rank() != 2 || rhs.rank() != 3 || lhs.dim(1) != rhs.dim(1)) {
    ThrowUsage("{}: lhs {} and rhs {}: expected [M, K] and [G, K, N]", where, lhs.shape(), rhs.shape());
  }
}

const std::vector<int> kAxis0 = {0}, kAxis1 = {1}, kAxis2 = {2};

}  // namespace

DType ProductType(DType lhs, DType rhs) { return lhs == rhs ? lhs : DType::kF32; }

Tensor FloatDot(Context& context, std::string_view where, const Tensor& lhs, const Tensor& rhs, const DotDims& dims,
                DType result_type) {
  const Shape shape = DotShape(where, lhs.shape(), rhs.shape(), dims);
  if (lhs.is_meta() || rhs.is_meta()) return Tensor::Meta(shape, result_type);
  const std::vector<int> lhs_free = FreeAxes(lhs.rank(), dims.lhs_contract, dims.lhs_batch);
  const std::vector<int> rhs_free = FreeAxes(rhs.rank(), dims.rhs_contract, dims.rhs_batch);
  const MatrixBatch a = AsMatrices(lhs, dims.lhs_batch, lhs_free, dims.lhs_contract);
  const MatrixBatch b = AsMatrices(rhs, dims.rhs_batch, dims.rhs_contract, rhs_free);
  Tensor result = Tensor::Empty(shape, result_type);
  std::vector<kernels::MatMulF32Args> products(static_cast<size_t>(a.batch));
  for (int64_t i = 0; i < a.batch; ++i) {
    kernels::MatMulF32Args& product = products[static_cast<size_t>(i)];
    product.a = Source(where, a, i);
    product.b = Source(where, b, i);
    product.c = Result(where, result, i * a.rows * b.cols, a.rows, b.cols);
  }
  kernels::MatMulF32(context.pool, context.isa, context.workspace, products);
  return result;
}

Tensor FloatRaggedDot(Context& context, std::string_view where, const Tensor& lhs, const Tensor& rhs,
                      const Tensor& group_sizes, DType result_type) {
  CheckRagged(where, lhs, rhs);
  const Shape shape{lhs.dim(0), rhs.dim(2)};
  if (lhs.is_meta() || rhs.is_meta()) return Tensor::Meta(shape, result_type);
  const std::vector<int64_t> rows = GroupRows(where, group_sizes, rhs.dim(0), lhs.dim(0));
  const MatrixBatch a = AsMatrices(lhs, {}, kAxis0, kAxis1), b = AsMatrices(rhs, kAxis0, kAxis1, kAxis2);
  std::vector<FloatSource> weights;
  for (int64_t g = 0; g < rhs.dim(0); ++g) weights.push_back(Source(where, b, g));
  Tensor result = Tensor::Empty(shape, result_type);
  kernels::GroupedF32Args args;
  args.a = Source(where, a, 0);
  args.group_rows = rows;
  args.b = weights;
  args.c = Result(where, result, 0, shape[0], shape[1]);
  kernels::GroupedMatMulF32(context.pool, context.isa, context.workspace, args);
  return result;
}

Tensor FloatRaggedGradRhs(Context& context, std::string_view where, const Tensor& lhs, const Tensor& grad,
                          const Tensor& group_sizes, DType result_type) {
  const int64_t groups = group_sizes.dim(0);
  const Shape shape{groups, lhs.dim(1), grad.dim(1)};
  if (lhs.is_meta() || grad.is_meta()) return Tensor::Meta(shape, result_type);
  const std::vector<int64_t> rows = GroupRows(where, group_sizes, groups, lhs.dim(0));
  const MatrixBatch a = AsMatrices(lhs, {}, kAxis0, kAxis1), g = AsMatrices(grad, {}, kAxis0, kAxis1);
  Tensor result = Tensor::Empty(shape, result_type);
  std::vector<FloatResult> pieces;
  for (int64_t i = 0; i < groups; ++i)
    pieces.push_back(Result(where, result, i * shape[1] * shape[2], shape[1], shape[2]));
  kernels::GroupedGradF32Args args;
  args.a = Source(where, a, 0);
  args.grad = Source(where, g, 0);
  args.group_rows = rows;
  args.c = pieces;
  kernels::GroupedGradF32(context.pool, context.isa, context.workspace, args);
  return result;
}

}  // namespace octavo::ops
