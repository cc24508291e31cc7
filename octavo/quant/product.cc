#include "octavo/quant/product.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "octavo/base/check.h"
#include "octavo/base/error.h"
#include "octavo/kernels/code_table.h"
#include "octavo/kernels/matmul_f32.h"
#include "octavo/kernels/matmul_i8.h"
#include "octavo/quant/frozen_weight.h"
#include "octavo/quant/product_source.h"

namespace octavo::quant {
namespace {

Tensor Matrices(const Tensor& tensor, const std::vector<int>& batch, const std::vector<int>& rows,
                const std::vector<int>& cols) {
  std::vector<int> order = batch;
  order.insert(order.end(), rows.begin(), rows.end());
  order.insert(order.end(), cols.begin(), cols.end());
  int64_t dims[3] = {1, 1, 1};
  for (int axis : batch) dims[0] *= tensor.shape()[axis];
  for (int axis : rows) dims[1] *= tensor.shape()[axis];
  for (int axis : cols) dims[2] *= tensor.shape()[axis];
  return tensor.Permute(order).Reshape(dims);
}

template <typename T>
kernels::MatrixView<const T> View(const Tensor& matrices, int64_t batch) {
  return {matrices.Data<T>() + batch * matrices.stride(0), matrices.dim(1), matrices.dim(2), matrices.stride(1),
          matrices.stride(2)};
}

std::vector<int32_t> CodeValues(const ProductSide& side) {
  const Tensor packed = side.values.Contiguous();
  std::vector<int32_t> result(static_cast<size_t>(packed.size()));
  switch (packed.dtype()) {
    case DType::kI8:
      std::ranges::copy(packed.Values<int8_t>(), result.begin());
      break;
    case DType::kI16:
      std::ranges::copy(packed.Values<int16_t>(), result.begin());
      break;
    default:
      std::ranges::copy(packed.Values<uint8_t>(), result.begin());
  }
  return result;
}

// Codes that the int8 kernels cannot take (16 bits, unsigned): plain loops, wide sums, a check at the end.
void WideProduct(const ProductSide& lhs, const ProductSide& rhs, Tensor& out) {
  const std::vector<int32_t> a = CodeValues(lhs), b = CodeValues(rhs);
  const int64_t batch = lhs.values.dim(0), m = lhs.values.dim(1), k = lhs.values.dim(2), n = rhs.values.dim(2);
  int32_t* c = out.MutableData<int32_t>();
  for (int64_t i = 0; i < batch * m; ++i) {
    const int64_t first = i / m * k * n;
    for (int64_t j = 0; j < n; ++j) {
      int64_t sum = 0;
      for (int64_t p = 0; p < k; ++p) {
        sum += int64_t{a[static_cast<size_t>(i * k + p)]} * b[static_cast<size_t>(first + p * n + j)];
      }
      if (sum < std::numeric_limits<int32_t>::min() || sum > std::numeric_limits<int32_t>::max()) {
        ThrowUsage("IntegerProduct: a sum of {} products of {} and {} codes leaves 32 bits; cut K into tiles", k,
                   Info(*lhs.codes).name, Info(*rhs.codes).name);
      }
      c[i * n + j] = static_cast<int32_t>(sum);
    }
  }
}

int64_t Macs(const Tensor& left, const Tensor& right) { return left.size() * right.dim(2); }

}  // namespace

kernels::FloatSource SourceOf(const Tensor& matrices, int64_t batch, const kernels::CodeTable* table) {
  kernels::FloatSource source;
  source.rows = matrices.dim(1);
  source.cols = matrices.dim(2);
  source.row_stride = matrices.stride(1);
  source.col_stride = matrices.stride(2);
  source.offset = batch * matrices.stride(0);
  switch (matrices.dtype()) {
    case DType::kF32:
      source.data = matrices.Data<float>();
      source.stored = kernels::Stored::kF32;
      break;
    case DType::kBF16:
      source.data = matrices.Data<uint16_t>();
      source.stored = kernels::Stored::kBF16;
      break;
    case DType::kF16:
      source.data = matrices.Data<uint16_t>();
      source.stored = kernels::Stored::kF16;
      break;
    case DType::kI8:
      source.data = matrices.Data<int8_t>();
      source.stored = kernels::Stored::kI8;
      break;
    default:
      source.data = matrices.Data<uint8_t>();
      source.stored = kernels::Stored::kByte;
      source.table = table;
  }
  return source;
}

kernels::FloatResult ResultOf(Tensor& matrices, int64_t batch) {
  const int64_t rows = matrices.dim(1), cols = matrices.dim(2);
  if (matrices.dtype() == DType::kF32) {
    return kernels::ResultF32(matrices.MutableData<float>() + batch * rows * cols, rows, cols);
  }
  uint16_t* data = matrices.MutableData<uint16_t>() + batch * rows * cols;
  return matrices.dtype() == DType::kBF16 ? kernels::ResultBF16(data, rows, cols)
                                          : kernels::ResultF16(data, rows, cols);
}

const kernels::CodeTable* TableOf(const ProductSide& side) {
  if (!side.codes || side.values.dtype() != DType::kU8) return nullptr;
  return &kernels::CodeTableOf(*side.codes);
}

Tensor Widened(const Tensor& values) {
  if (values.dtype() != DType::kI16) return values;
  const Tensor packed = values.Contiguous();
  Tensor result = Tensor::Empty(values.shape(), DType::kF32);
  std::ranges::copy(packed.Values<int16_t>(), result.MutableData<float>());
  return result;
}

bool IsInteger(const ProductSide& side) { return side.codes && Info(*side.codes).kind == FormatKind::kInteger; }

Tensor LeftMatrices(const Tensor& lhs, const DotDims& dims) {
  return Matrices(lhs, dims.lhs_batch, FreeAxes(lhs.rank(), dims.lhs_contract, dims.lhs_batch), dims.lhs_contract);
}

Tensor RightMatrices(const Tensor& rhs, const DotDims& dims) {
  return Matrices(rhs, dims.rhs_batch, dims.rhs_contract, FreeAxes(rhs.rank(), dims.rhs_contract, dims.rhs_batch));
}

Tensor IntegerProduct(const Run& run, const ProductSide& lhs, const ProductSide& rhs, const DotDims& dims) {
  OCTAVO_CHECK(IsInteger(lhs) && IsInteger(rhs));
  const Shape shape = DotShape("IntegerProduct", lhs.values.shape(), rhs.values.shape(), dims);
  const Tensor left = LeftMatrices(lhs.values, dims), right = RightMatrices(rhs.values, dims);
  const int64_t m = left.dim(1), n = right.dim(2);
  Tensor out = Tensor::Empty({left.dim(0), m, n}, DType::kI32);
  if (left.dtype() == DType::kI8 && right.dtype() == DType::kI8) {
    for (int64_t batch = 0; batch < left.dim(0); ++batch) {
      kernels::MatMulI8Args args;
      args.a = View<int8_t>(left, batch);
      args.b = View<int8_t>(right, batch);
      args.out.i32 = kernels::RowMajor(out.MutableData<int32_t>() + batch * m * n, m, n);
      args.workspace = &run.workspace;
      kernels::MatMulI8(run.pool, run.isa, args);
    }
  } else {
    WideProduct({left, lhs.codes}, {right, rhs.codes}, out);
  }
  if (run.macs != nullptr) run.macs->integer += Macs(left, right);
  return out.Reshape(shape);
}

Tensor FloatProduct(const Run& run, const ProductSide& lhs, const ProductSide& rhs, const DotDims& dims, DType out) {
  const Shape shape = DotShape("FloatProduct", lhs.values.shape(), rhs.values.shape(), dims);
  if (run.frozen != nullptr && dims.rhs_batch.empty() && !run.reference) {
    // Dequantized weights are announced by Values and have no codes here.
    const PackedFloats* packed = rhs.codes ? run.frozen->Codes(run, rhs, dims.rhs_contract) : run.frozen->values();
    if (packed != nullptr) return PackedProduct(run, lhs, dims.lhs_contract, *packed, out);
  }
  const Tensor left = LeftMatrices(Widened(lhs.values), dims), right = RightMatrices(Widened(rhs.values), dims);
  const kernels::CodeTable *left_table = TableOf(lhs), *right_table = TableOf(rhs);
  Tensor result = Tensor::Empty({left.dim(0), left.dim(1), right.dim(2)}, out);
  std::vector<kernels::MatMulF32Args> many;
  for (int64_t batch = 0; batch < left.dim(0); ++batch) {
    kernels::MatMulF32Args args;
    args.a = SourceOf(left, batch, left_table);
    args.b = SourceOf(right, batch, right_table);
    args.c = ResultOf(result, batch);
    many.push_back(args);
  }
  kernels::MatMulF32(run.pool, run.isa, run.workspace, many);
  if (run.macs != nullptr) run.macs->floating += Macs(left, right);
  return result.Reshape(shape);
}

}  // namespace octavo::quant
