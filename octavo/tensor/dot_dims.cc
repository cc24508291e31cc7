#include "octavo/tensor/dot_dims.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "octavo/base/error.h"

namespace octavo {
namespace {

void CheckAxesOf(std::string_view op, const char* side, const Shape& shape, const std::vector<int>& contract,
                 const std::vector<int>& batch) {
  std::vector<int> all = contract;
  all.insert(all.end(), batch.begin(), batch.end());
  std::sort(all.begin(), all.end());
  const bool inside = all.empty() || (all.front() >= 0 && all.back() < shape.rank());
  if (!inside || std::adjacent_find(all.begin(), all.end()) != all.end()) {
    ThrowUsage("{}: {} {} cannot contract ({}) with batch ({})", op, side, shape, fmt::join(contract, ", "),
               fmt::join(batch, ", "));
  }
}

int64_t Product(const Shape& shape, const std::vector<int>& axes) {
  int64_t count = 1;
  for (int axis : axes) count *= shape[axis];
  return count;
}

}  // namespace

DotDims MatMulDims(const Shape& lhs) { return {{lhs.rank() - 1}, {0}, {}, {}}; }

void CheckDot(std::string_view op, const Shape& lhs, const Shape& rhs, const DotDims& dims) {
  if (dims.lhs_contract.size() != dims.rhs_contract.size() || dims.lhs_batch.size() != dims.rhs_batch.size()) {
    ThrowUsage("{}: lhs {} names {} contracting and {} batch axes, rhs {} names {} and {}", op, lhs,
               dims.lhs_contract.size(), dims.lhs_batch.size(), rhs, dims.rhs_contract.size(), dims.rhs_batch.size());
  }
  CheckAxesOf(op, "lhs", lhs, dims.lhs_contract, dims.lhs_batch);
  CheckAxesOf(op, "rhs", rhs, dims.rhs_contract, dims.rhs_batch);
  for (size_t i = 0; i < dims.lhs_contract.size(); ++i) {
    const int64_t left = lhs[dims.lhs_contract[i]], right = rhs[dims.rhs_contract[i]];
    if (left != right) ThrowUsage("{}: lhs {} contracts {}, rhs {} wants {}", op, lhs, left, rhs, right);
  }
  for (size_t i = 0; i < dims.lhs_batch.size(); ++i) {
    const int64_t left = lhs[dims.lhs_batch[i]], right = rhs[dims.rhs_batch[i]];
    if (left != right) ThrowUsage("{}: lhs {} has a batch of {}, rhs {} of {}", op, lhs, left, rhs, right);
  }
}

std::vector<int> FreeAxes(int rank, const std::vector<int>& contract, const std::vector<int>& batch) {
  std::vector<int> result;
  for (int axis = 0; axis < rank; ++axis) {
    const bool taken = std::find(contract.begin(), contract.end(), axis) != contract.end() ||
                       std::find(batch.begin(), batch.end(), axis) != batch.end();
    if (!taken) result.push_back(axis);
  }
  return result;
}

Shape DotShape(std::string_view op, const Shape& lhs, const Shape& rhs, const DotDims& dims) {
  CheckDot(op, lhs, rhs, dims);
  std::vector<int64_t> out;
  for (int axis : dims.lhs_batch) out.push_back(lhs[axis]);
  for (int axis : FreeAxes(lhs.rank(), dims.lhs_contract, dims.lhs_batch)) out.push_back(lhs[axis]);
  for (int axis : FreeAxes(rhs.rank(), dims.rhs_contract, dims.rhs_batch)) out.push_back(rhs[axis]);
  return Shape(out);
}

DotSize SizeOfDot(const Shape& lhs, const Shape& rhs, const DotDims& dims) {
  return {Product(lhs, dims.lhs_batch), Product(lhs, FreeAxes(lhs.rank(), dims.lhs_contract, dims.lhs_batch)),
          Product(rhs, FreeAxes(rhs.rank(), dims.rhs_contract, dims.rhs_batch)), Product(lhs, dims.lhs_contract)};
}

}  // namespace octavo
