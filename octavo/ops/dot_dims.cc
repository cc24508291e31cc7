#include "octavo/ops/dot_dims.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "octavo/base/error.h"

namespace octavo::ops {
namespace {

// Position of each listed axis in the product of a backward dot, so that the product can be permuted back.
std::vector<int> OrderFor(int rank, std::span<const int> batch, std::span<const int> free,
                          std::span<const int> contract, std::span<const int> other_contract) {
  // The product's axes: batch, the operand's free axes, then the other operand's free axes of this dot, which are its
  // contracting axes in ascending order.
  std::vector<int> by_other(contract.size());
  std::iota(by_other.begin(), by_other.end(), 0);
  std::sort(by_other.begin(), by_other.end(), [&](int a, int b) { return other_contract[a] < other_contract[b]; });
  std::vector<int> product;
  product.insert(product.end(), batch.begin(), batch.end());
  product.insert(product.end(), free.begin(), free.end());
  for (int i : by_other) product.push_back(contract[static_cast<size_t>(i)]);
  std::vector<int> order(static_cast<size_t>(rank));
  for (size_t i = 0; i < product.size(); ++i) order[static_cast<size_t>(product[i])] = static_cast<int>(i);
  return order;
}

std::vector<int> Iota(int begin, int count) {
  std::vector<int> result(static_cast<size_t>(count));
  std::iota(result.begin(), result.end(), begin);
  return result;
}

struct Group {
  int64_t size, stride;
};

// The one stride with which a group of axes can be walked in order, if there is one. Axes of length 1 do not count.
std::optional<Group> Collapse(const Tensor& tensor, std::span<const int> axes) {
  Group group{1, 0};
  for (size_t i = axes.size(); i-- > 0;) {
    const int64_t dim = tensor.shape()[axes[i]], stride = tensor.stride(axes[i]);
    if (dim == 1) continue;
    if (group.size == 1) {
      group = {dim, stride};
    } else if (stride == group.stride * group.size) {
      group.size *= dim;
    } else {
      return std::nullopt;
    }
  }
  return group;
}

}  // namespace

int64_t DotMacs(const Shape& lhs, const Shape& rhs, const DotDims& dims) {
  const DotSize size = SizeOfDot(lhs, rhs, dims);
  return size.batch * size.m * size.n * size.k;
}

GradDot GradLhsDot(int lhs_rank, int rhs_rank, const DotDims& dims) {
  const std::vector<int> lhs_free = FreeAxes(lhs_rank, dims.lhs_contract, dims.lhs_batch);
  const std::vector<int> rhs_free = FreeAxes(rhs_rank, dims.rhs_contract, dims.rhs_batch);
  const int batch = static_cast<int>(dims.lhs_batch.size());
  GradDot result;
  result.dims.lhs_batch = Iota(0, batch);
  result.dims.rhs_batch = dims.rhs_batch;
  result.dims.lhs_contract = Iota(batch + static_cast<int>(lhs_free.size()), static_cast<int>(rhs_free.size()));
  result.dims.rhs_contract = rhs_free;
  result.order = OrderFor(lhs_rank, dims.lhs_batch, lhs_free, dims.lhs_contract, dims.rhs_contract);
  return result;
}

GradDot GradRhsDot(int lhs_rank, int rhs_rank, const DotDims& dims) {
  const std::vector<int> lhs_free = FreeAxes(lhs_rank, dims.lhs_contract, dims.lhs_batch);
  const std::vector<int> rhs_free = FreeAxes(rhs_rank, dims.rhs_contract, dims.rhs_batch);
  const int batch = static_cast<int>(dims.lhs_batch.size());
  GradDot result;
  result.dims.lhs_batch = Iota(0, batch);
  result.dims.rhs_batch = dims.lhs_batch;
  result.dims.lhs_contract = Iota(batch, static_cast<int>(lhs_free.size()));
  result.dims.rhs_contract = lhs_free;
  result.order = OrderFor(rhs_rank, dims.rhs_batch, rhs_free, dims.rhs_contract, dims.lhs_contract);
  return result;
}

MatrixBatch AsMatrices(const Tensor& tensor, std::span<const int> batch, std::span<const int> rows,
                       std::span<const int> cols) {
  const std::optional<Group> b = Collapse(tensor, batch), r = Collapse(tensor, rows), c = Collapse(tensor, cols);
  if (b && r && c) return {tensor, b->size, r->size, c->size, b->stride, r->stride, c->stride};
  std::vector<int> order(batch.begin(), batch.end());
  order.insert(order.end(), rows.begin(), rows.end());
  order.insert(order.end(), cols.begin(), cols.end());
  MatrixBatch result{tensor.Permute(order).Contiguous()};
  for (int axis : batch) result.batch *= tensor.shape()[axis];
  for (int axis : rows) result.rows *= tensor.shape()[axis];
  for (int axis : cols) result.cols *= tensor.shape()[axis];
  result.col_stride = 1;
  result.row_stride = result.cols;
  result.batch_stride = result.rows * result.cols;
  return result;
}

}  // namespace octavo::ops
