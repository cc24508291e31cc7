#include "octavo/ops/op_support.h"

#include "octavo/base/error.h"
#include "octavo/ops/rows.h"

namespace octavo::ops {

void CheckFloat(std::string_view where, const Tensor& tensor) {
  if (tensor.dtype() != DType::kF32 && tensor.dtype() != DType::kBF16) {
    ThrowUsage("{}: expected f32 or bf16, found {}", where, tensor.ToString());
  }
}

void CheckSame(std::string_view where, const Tensor& a, const Tensor& b) {
  CheckFloat(where, a);
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) {
    ThrowUsage("{}: {} and {} differ", where, a.ToString(), b.ToString());
  }
}

const void* DataOf(const Tensor& tensor) {
  if (tensor.dtype() == DType::kF32) return tensor.Data<float>();
  if (tensor.dtype() == DType::kI32) return tensor.Data<int32_t>();
  return tensor.Data<uint16_t>();
}

void* MutDataOf(Tensor& tensor) {
  if (tensor.dtype() == DType::kF32) return tensor.MutableData<float>();
  return tensor.MutableData<uint16_t>();
}

RowsOfTensor AsRows(const Tensor& tensor) {
  const int rank = tensor.rank();
  const int64_t cols = rank == 0 ? 1 : tensor.dim(rank - 1);
  const int64_t count = cols == 0 ? 0 : tensor.size() / cols;
  bool simple = rank > 0 && (cols <= 1 || tensor.stride(rank - 1) == 1);
  int64_t stride = cols, expected = 0;
  for (int axis = rank - 2; axis >= 0 && simple; --axis) {
    if (tensor.dim(axis) == 1) continue;
    if (expected == 0) {
      stride = tensor.stride(axis);
      simple = stride >= cols;
    } else {
      simple = tensor.stride(axis) == expected;
    }
    expected = tensor.stride(axis) * tensor.dim(axis);
  }
  if (simple) return {tensor, {DataOf(tensor), tensor.dtype(), count, cols, stride}};
  Tensor packed = tensor.Contiguous();
  const void* data = DataOf(packed);
  return {std::move(packed), {data, tensor.dtype(), count, cols, cols}};
}

kernels::MutRows WholeOf(Tensor& tensor) {
  return {MutDataOf(tensor), tensor.dtype(), 1, tensor.size(), tensor.size()};
}

kernels::MutRows MutRowsOf(Tensor& tensor) {
  const int64_t cols = tensor.rank() == 0 ? 1 : tensor.dim(tensor.rank() - 1);
  return {MutDataOf(tensor), tensor.dtype(), cols == 0 ? 0 : tensor.size() / cols, cols, cols};
}

std::vector<int32_t> StartsFor(const Context& context, int64_t rows) {
  if (context.rows == nullptr || context.rows->tokens() == 0 || rows % context.rows->tokens() != 0) return {};
  const int64_t factor = rows / context.rows->tokens();
  std::vector<int32_t> starts;
  for (const Sequence& sequence : context.rows->sequences) {
    starts.push_back(static_cast<int32_t>(sequence.row_begin * factor));
  }
  starts.push_back(static_cast<int32_t>(rows));
  return starts;
}

kernels::Sequences SequencesOf(const std::vector<int32_t>& starts) {
  if (starts.empty()) return {};
  return {starts.data(), static_cast<int64_t>(starts.size()) - 1};
}

RngKey KeyOf(const Context& context, std::string_view name) {
  // FNV-1a: a fixed function of the name, equal on every machine.
  uint32_t hash = 2166136261u;
  for (char c : context.path()) hash = (hash ^ static_cast<uint8_t>(c)) * 16777619u;
  hash = (hash ^ uint32_t{'/'}) * 16777619u;
  for (char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 16777619u;
  return context.key.FoldIn(hash);
}

}  // namespace octavo::ops
