#include "octavo/quant/packed_weight.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory_resource>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/base/float_mode.h"
#include "octavo/kernels/panel_runs.h"
#include "octavo/quant/fused_parts.h"

namespace octavo::quant {
namespace {

constexpr const char* kOp = "PackedWeight";

// The weight alone as the right side of a dot, for the helpers that look at one side.
DotDims AloneDims(const std::vector<int>& contract) { return {contract, contract, {}, {}}; }

// Its tile: that of the scale on a single contracted axis.
std::optional<int64_t> TileOf(const DotParts& parts, const std::vector<int>& contract) {
  const DotParts nothing{};
  DotDims dims;
  dims.rhs_contract = contract;
  dims.lhs_contract = contract;
  return KernelTile(nothing, parts, dims);
}

bool FitsFourBits(Format format) { return Info(format).bits <= 4; }

}  // namespace

bool PackedWeight::Packs(const DotOperand& weight, const std::vector<int>& contract) {
  return Packs(PartsOf(kOp, weight), contract);
}

bool PackedWeight::Packs(const DotParts& parts, const std::vector<int>& contract) {
  if (parts.side.values.is_meta()) return false;
  return HasByteCodes(parts) && (!parts.scale || ScaleMathDType({}, parts)) && TileOf(parts, contract).has_value();
}

PackedWeight::PackedWeight(const Run& run, const DotOperand& weight, std::vector<int> contract)
    : PackedWeight(run, PartsOf(kOp, weight), std::move(contract)) {}

PackedWeight::PackedWeight(const Run& run, const DotParts& parts, std::vector<int> contract)
    : shape_(parts.side.values.shape()), contract_(std::move(contract)) {
  CheckDot(kOp, shape_, shape_, AloneDims(contract_));
  if (!Packs(parts, contract_)) ThrowUsage("{}: {} cannot be packed for integer kernels", kOp, shape_);
  format_ = *parts.side.codes;
  tile_ = *TileOf(parts, contract_);
  four_bits_ = FitsFourBits(format_);
  if (parts.scale) scale_ = parts.scale->Clone();
  if (parts.zero_point) zero_point_ = parts.zero_point->Clone();
  const Tensor matrix = RightMatrices(parts.side.values, AloneDims(contract_));  // [1, K, N]
  k_ = matrix.dim(1);
  n_ = matrix.dim(2);
  const auto view = MatrixOf<int8_t>(matrix, 0);
  if (four_bits_) {
    panels_ = Tensor::Empty({kernels::PanelsU4Bytes(k_, n_, tile_)}, DType::kU8);
    col_sums_ = Tensor::Empty({kernels::PanelsU4Sums(k_, n_, tile_)}, DType::kI32);
    kernels::PackPanelsU4(run.pool, run.isa, view, tile_, panels_.MutableData<uint8_t>(),
                          col_sums_.MutableData<int32_t>());
  } else {
    panels_ = Tensor::Empty({kernels::PanelsI8Bytes(k_, n_, tile_)}, DType::kI8);
    col_sums_ = Tensor::Empty({kernels::PanelsI8Sums(k_, n_, tile_)}, DType::kI32);
    kernels::PackPanelsI8(run.pool, run.isa, view, tile_, panels_.MutableData<int8_t>(),
                          col_sums_.MutableData<int32_t>());
  }
  PackScales(parts.side.values);
  Gather();
}

// Scales as the kernels meet them: in their own order those of one panel and the next group lie a row of the weight
// apart, and each costs a trip to memory.
void PackedWeight::PackScales(const Tensor& values) {
  if (!scale_ || zero_point_ || scale_->dtype() != DType::kF32) return;
  const Tensor scales = RightScales({{values, format_}, scale_, std::nullopt}, AloneDims(contract_))
                            .scale->Contiguous();  // [1, tiles, N]
  const int64_t tiles = scales.dim(1), columns = scales.dim(2), panels = (n_ + 15) / 16;
  panel_scales_ = Tensor::Zeros({panels, tiles, 16}, DType::kF32);
  const float* from = scales.Data<float>();
  float* to = panel_scales_.MutableData<float>();
  for (int64_t tile = 0; tile < tiles; ++tile) {
    for (int64_t n = 0; n < n_; ++n) {
      to[(n / 16 * tiles + tile) * 16 + n % 16] = from[tile * columns + (columns == 1 ? 0 : n)];
    }
  }
  scale_ = Tensor::Meta(scale_->shape(), DType::kF32);
}

// What MultiplyRows reads.
void PackedWeight::Gather() {
  std::vector<int64_t> dims;
  for (int axis : FreeAxes(shape_.rank(), contract_, {})) dims.push_back(shape_[axis]);
  free_ = Shape(dims);
  streamed_.panels = panels_.RawData();
  // int8 panels are followed by sums.
  const int64_t sums = four_bits_ ? 0 : kernels::PanelsI8Sums(k_, n_, tile_) * int64_t{sizeof(int32_t)};
  streamed_.panel_bytes = (panels_.bytes() - sums) / std::max<int64_t>((n_ + 15) / 16, 1);
  streamed_.k = k_;
  streamed_.n = n_;
  streamed_.tile = tile_;
  streamed_.col_sums = col_sums_.Data<int32_t>();
  streamed_.four_bits = four_bits_;
  if (!panel_scales_.defined()) return;
  const int64_t tiles = panel_scales_.dim(1);
  streamed_.scale = {panel_scales_.Data<float>(), 1, tiles == 1 ? 0 : 16, tiles * 16};
}

int64_t PackedWeight::bytes() const {
  const int64_t scales = panel_scales_.defined() ? panel_scales_.bytes() : scale_ ? scale_->bytes() : 0;
  return panels_.bytes() + col_sums_.bytes() + scales + (zero_point_ ? zero_point_->bytes() : 0);
}

Tensor PackedWeight::Unpacked() const {
  Tensor matrix = Tensor::Empty({k_, n_}, DType::kI8);
  int8_t* out = matrix.MutableData<int8_t>();
  for (int64_t k = 0; k < k_; ++k) {
    for (int64_t n = 0; n < n_; ++n) {
      *out++ = four_bits_ ? kernels::PanelsU4Code({panels_.Data<uint8_t>(), nullptr, k_, n_, tile_}, k, n)
                          : kernels::PanelsI8Code({panels_.Data<int8_t>(), nullptr, k_, n_, tile_}, k, n);
    }
  }
  // Back from [contracted…, free…] to the axes of the weight.
  std::vector<int> order = contract_;
  for (int axis : FreeAxes(shape_.rank(), contract_, {})) order.push_back(axis);
  std::vector<int64_t> dims;
  std::vector<int> inverse(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    dims.push_back(shape_[order[i]]);
    inverse[static_cast<size_t>(order[i])] = static_cast<int>(i);
  }
  return matrix.Reshape(dims).Permute(inverse).Contiguous();
}

DotParts PackedWeight::Parts() const { return {{Tensor::Meta(shape_, DType::kI8), format_}, scale_, zero_point_}; }

bool PackedWeight::Takes(const DotOperand& lhs, const std::vector<int>& lhs_contract) const {
  return !std::holds_alternative<Tensor>(lhs) && Takes(PartsOf(kOp, lhs), lhs_contract);
}

bool PackedWeight::Takes(const DotParts& left, const std::vector<int>& lhs_contract) const {
  const DotDims dims{lhs_contract, contract_, {}, {}};
  const DotParts right = Parts();
  return HasByteCodes(left) && ScaleMathDType(left, right).has_value() && KernelTile(left, right, dims) == tile_ &&
         !(left.zero_point && right.zero_point);
}

kernels::MatMulU4Args PackedWeight::ArgsU4(const Run& run, const Tensor& rows, const kernels::ScaleEpilogue& epilogue,
                                           Tensor& out) const {
  kernels::MatMulU4Args args;
  args.a = MatrixOf<int8_t>(rows, 0);
  args.panels = {panels_.Data<uint8_t>(), col_sums_.Data<int32_t>(), k_, n_, tile_};
  args.epilogue = epilogue;
  args.out = OutputOf(out, 0);
  args.workspace = &run.workspace;
  return args;
}

kernels::MatMulI8Args PackedWeight::ArgsI8(const Run& run, const Tensor& rows, const kernels::ScaleEpilogue& epilogue,
                                           Tensor& out) const {
  kernels::MatMulI8Args args;
  args.a = MatrixOf<int8_t>(rows, 0);
  args.panels = {panels_.Data<int8_t>(), col_sums_.Data<int32_t>(), k_, n_, tile_};
  args.tile = tile_;
  args.epilogue = epilogue;
  args.out = OutputOf(out, 0);
  args.workspace = &run.workspace;
  return args;
}

// rows [1, M, K] times the panels into out [1, M, N].
void PackedWeight::Multiply(const Run& run, const Tensor& rows, const kernels::ScaleEpilogue& epilogue,
                            Tensor& out) const {
  if (four_bits_) {
    kernels::MatMulU4(run.pool, run.isa, ArgsU4(run, rows, epilogue, out));
  } else {
    kernels::MatMulI8(run.pool, run.isa, ArgsI8(run, rows, epilogue, out));
  }
  if (run.macs != nullptr) run.macs->integer += rows.size() * n_;
}

std::vector<Tensor> PackedWeight::MultiplyRows(const Run& run, std::span<const PackedWeight* const> weights,
                                               const Tensor& codes, const Tensor& scale,
                                               std::span<const int64_t> lead) {
  const ScopedFloatMode mode;
  const int64_t rows = codes.dim(0), depth = codes.dim(1);
  const kernels::MatrixView<const int8_t> a = kernels::RowMajor(codes.Data<int8_t>(), rows, depth);
  // Lists of a few products; longer ones go on to the heap.
  alignas(std::max_align_t) std::array<std::byte, 4096> memory;
  std::pmr::monotonic_buffer_resource here(memory.data(), memory.size());
  std::pmr::vector<kernels::MatMulU4Args> four(&here);
  std::pmr::vector<kernels::MatMulI8Args> eight(&here);
  std::vector<Tensor> out;
  out.reserve(weights.size());
  std::pmr::vector<int64_t> dims(&here);
  for (const PackedWeight* weight : weights) {
    const Streamed& w = weight->streamed_;
    dims.assign(lead.begin(), lead.end());
    dims.insert(dims.end(), weight->free_.begin(), weight->free_.end());
    out.push_back(Tensor::Empty(Shape(std::span<const int64_t>(dims)), DType::kF32));
    kernels::ScaleEpilogue epilogue;
    epilogue.row_scale = {scale.Data<float>(), 1, 0};
    epilogue.col_scale = w.scale;
    kernels::IntOutput to;
    to.f32 = kernels::RowMajor(out.back().MutableData<float>(), rows, w.n);
    if (w.four_bits) {
      kernels::MatMulU4Args& args = four.emplace_back();
      args.a = a;
      args.panels = {reinterpret_cast<const uint8_t*>(w.panels), w.col_sums, w.k, w.n, w.tile};
      args.epilogue = epilogue;
      args.out = to;
      args.workspace = &run.workspace;
    } else {
      kernels::MatMulI8Args& args = eight.emplace_back();
      args.a = a;
      args.panels = {reinterpret_cast<const int8_t*>(w.panels), w.col_sums, w.k, w.n, w.tile};
      args.tile = w.tile;
      args.epilogue = epilogue;
      args.out = to;
      args.workspace = &run.workspace;
    }
    if (run.macs != nullptr) run.macs->integer += codes.size() * w.n;
  }
  if (!four.empty()) kernels::MatMulU4(run.pool, run.isa, four);
  if (!eight.empty()) kernels::MatMulI8(run.pool, run.isa, eight);
  return out;
}

PanelStream PackedWeight::StreamOf(std::span<const PackedWeight* const> weights, int workers) {
  constexpr int64_t kMost = int64_t{256} << 10;  // of a worker: it must stay in its second cache until it is read
  int64_t panels = 0;
  for (const PackedWeight* weight : weights) panels += (weight->streamed_.n + 15) / 16;
  const Streamed& first = weights[0]->streamed_;
  const int64_t stride = kernels::PanelRuns(panels, first.panel_bytes, 1, workers).First(0).end * first.panel_bytes;
  return {first.panels, stride, std::min(stride, kMost)};
}

Tensor PackedDot(const Run& run, const DotOperand& lhs, const std::vector<int>& lhs_contract,
                 const PackedWeight& weight, std::optional<DType> preferred) {
  const DotParts right = weight.Parts();
  DotOperand like = Codes{right.side.values, weight.format_};
  if (weight.scale_) like = QArray{right.side.values, *weight.scale_, std::nullopt, weight.format_};
  return PackedDot(run, PartsOf("PackedDot", lhs), lhs_contract, weight, DotResultDType(lhs, like, preferred));
}

Tensor PackedDot(const Run& run, const DotParts& left, const std::vector<int>& lhs_contract, const PackedWeight& weight,
                 DType result) {
  const DotDims dims{lhs_contract, weight.contract_, {}, {}};
  const Shape shape = DotShape("PackedDot", left.side.values.shape(), weight.shape_, dims);
  const ScopedFloatMode mode;
  if (!weight.Takes(left, lhs_contract)) {
    ThrowUsage(
        "PackedDot: lhs {} does not fit the packed weight {}: integer codes, a scale of the same dtype and tiles "
        "of {} or none",
        left.side.values.shape(), weight.shape_, weight.tile_);
  }
  const DotParts right = weight.Parts();
  const DType math = *ScaleMathDType(left, right);
  const Tensor rows = LeftMatrices(left.side.values, dims);  // [1, M, K]
  Tensor out = Tensor::Empty({1, rows.dim(1), weight.n_}, math);
  kernels::ScaleEpilogue epilogue;
  const bool packed = weight.panel_scales_.defined();
  const SideScales right_scales = packed ? SideScales() : RightScales(right, dims),
                   left_scales = LeftScales(left, dims);
  SetScales(left_scales, right_scales, 0, math, epilogue);
  if (packed) epilogue.col_scale = weight.streamed_.scale;
  weight.Multiply(run, rows, epilogue, out);
  return CastTo(out.Reshape(shape), result);
}

}  // namespace octavo::quant
