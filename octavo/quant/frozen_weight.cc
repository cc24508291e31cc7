#include "octavo/quant/frozen_weight.h"

#include "octavo/kernels/code_table.h"
#include "octavo/kernels/matmul_f32.h"
#include "octavo/kernels/matmul_i8.h"
#include "octavo/quant/fused_parts.h"
#include "octavo/quant/product_source.h"
#include "octavo/quant/quantize.h"

namespace octavo::quant {
namespace {

DotDims AloneDims(const std::vector<int>& contract) { return {contract, contract, {}, {}}; }

// The codes [1, K, N] as the F family reads them; four-bit codes through their table, so that two share a byte.
kernels::FloatSource CodeSource(const Tensor& matrix, Format format) {
  if (matrix.dtype() != DType::kI8 || Info(format).bits > 4) return SourceOf(matrix, 0, TableOf({matrix, format}));
  kernels::FloatSource source;
  source.data = matrix.Data<int8_t>();
  source.stored = kernels::Stored::kByte;
  source.rows = matrix.dim(1);
  source.cols = matrix.dim(2);
  source.row_stride = matrix.stride(1);
  source.col_stride = matrix.stride(2);
  source.table = &kernels::CodeTableOf(format);
  return source;
}

bool Packable(const Tensor& values) {
  return !values.is_meta() && (values.dtype() == DType::kI8 || values.dtype() == DType::kU8);
}

// One scale per column and tile of K rows: tiles on one contracted axis at most, and only on the last one listed.
std::optional<int64_t> RowsPerScale(const QArray& weight, const std::vector<int>& contract) {
  int64_t depth = 1, pieces = 1;
  for (size_t i = 0; i < contract.size(); ++i) {
    depth *= weight.qvalue.dim(contract[i]);
    const int64_t here = weight.scale.dim(contract[i]);
    if (here > 1 && contract.size() > 1) return std::nullopt;
    pieces *= here;
  }
  return depth / pieces;
}

std::vector<float> AsFloats(const Tensor& part) {
  const Tensor packed = part.Contiguous();
  std::vector<float> result;
  if (packed.dtype() == DType::kF32) return packed.ToVector<float>();
  for (int8_t code : packed.Values<int8_t>()) result.push_back(static_cast<float>(code));
  return result;
}

}  // namespace

const PackedWeight* FrozenWeight::Integer(const Run& run, const DotParts& weight, const std::vector<int>& contract) {
  if (integer_ != nullptr || weight.side.values.is_meta()) return integer_.get();
  if (!PackedWeight::Packs(weight, contract)) return nullptr;
  integer_ = std::make_unique<PackedWeight>(run, weight, contract);
  return integer_.get();
}

const PackedFloats* FrozenWeight::Codes(const Run& run, const ProductSide& weight, const std::vector<int>& contract) {
  if (codes_ != nullptr || !weight.codes || !Packable(weight.values)) return codes_.get();
  const Tensor matrix = RightMatrices(weight.values, AloneDims(contract));
  codes_ = std::make_unique<PackedFloats>(
      PackedFloats{weight.values.shape(), contract, kernels::PackWeights(run.pool, CodeSource(matrix, *weight.codes))});
  return codes_.get();
}

const PackedFloats* FrozenWeight::Values(const Run& run, const QArray& weight, const std::vector<int>& contract) {
  if (values_ != nullptr || !Packable(weight.qvalue)) return values_.get();
  const auto rows = RowsPerScale(weight, contract);
  const bool byte_zero = !weight.zero_point || weight.zero_point->dtype() == DType::kI8;
  if (!rows || weight.scale.dtype() != DType::kF32 || !byte_zero) return nullptr;
  const Tensor matrix = RightMatrices(weight.qvalue, AloneDims(contract));
  const DotParts parts{{weight.qvalue, weight.format}, weight.scale, weight.zero_point};
  const SideScales scales = RightScales(parts, AloneDims(contract));  // [1, tiles, N]
  const std::vector<float> scale = AsFloats(*scales.scale);
  const std::vector<float> zero = scales.zero ? AsFloats(*scales.zero) : std::vector<float>();
  kernels::FloatSource source = CodeSource(matrix, weight.format);
  source.scales.scale = scale.data();
  source.scales.zero_point = zero.empty() ? nullptr : zero.data();
  source.scales.tile_rows = *rows;
  source.scales.row_stride = matrix.dim(2);
  source.scales.col_stride = 1;
  values_ = std::make_unique<PackedFloats>(
      PackedFloats{weight.qvalue.shape(), contract, kernels::PackWeights(run.pool, source)});
  return values_.get();
}

const PackedGroups* FrozenWeight::Groups(const Run& run, const Tensor& codes, int64_t tile) {
  if (groups_ != nullptr || codes.is_meta()) return groups_.get();
  const int64_t groups = codes.dim(0), k = codes.dim(1), n = codes.dim(2), each = kernels::PanelsI8Bytes(k, n, tile);
  Tensor panels = Tensor::Empty({groups, each}, DType::kI8);
  for (int64_t group = 0; group < groups; ++group) {
    const Tensor one = codes.Select(0, group);
    kernels::PackPanelsI8(run.pool, run.isa, {one.Data<int8_t>(), k, n, one.stride(0), one.stride(1)}, tile,
                          panels.MutableData<int8_t>() + group * each, nullptr);
  }
  groups_ = std::make_unique<PackedGroups>(PackedGroups{std::move(panels), tile});
  return groups_.get();
}

int64_t FrozenWeight::bytes() const {
  int64_t total = 0;
  if (integer_ != nullptr) total += integer_->bytes();
  if (codes_ != nullptr) total += codes_->panels.bytes();
  if (values_ != nullptr) total += values_->panels.bytes();
  if (groups_ != nullptr) total += groups_->panels.bytes();
  return total;
}

Tensor PackedProduct(const Run& run, const ProductSide& lhs, const std::vector<int>& lhs_contract,
                     const PackedFloats& weight, DType out) {
  const DotDims dims{lhs_contract, weight.contract, {}, {}};
  const Shape shape = DotShape("PackedProduct", lhs.values.shape(), weight.shape, dims);
  const Tensor left = LeftMatrices(Widened(lhs.values), dims);
  Tensor result = Tensor::Empty({1, left.dim(1), weight.panels.cols()}, out);
  kernels::MatMulF32Args args;
  args.a = SourceOf(left, 0, TableOf(lhs));
  args.packed_b = &weight.panels;
  args.c = ResultOf(result, 0);
  kernels::MatMulF32(run.pool, run.isa, run.workspace, args);
  if (run.macs != nullptr) run.macs->floating += left.size() * weight.panels.cols();
  return result.Reshape(shape);
}

}  // namespace octavo::quant
