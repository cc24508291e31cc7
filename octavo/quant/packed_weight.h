// A weight as the integer kernels stream it: packed once, multiplied many times, by one row as by a thousand, with the
// bits of the fast dot. int8 codes take a byte each, codes of 2 … 4 bits half a byte. Made when weights are loaded or
// after an optimizer step (weight_cache.h); used by serving and by the forward and input-gradient products of training.
// Operands that change with every product are packed as they go.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "octavo/kernels/matmul_i8.h"
#include "octavo/kernels/matmul_u4.h"
#include "octavo/quant/dot.h"
#include "octavo/quant/dot_parts.h"
#include "octavo/quant/fused_parts.h"
#include "octavo/quant/run.h"

namespace octavo::quant {

// For ThreadPool::FetchAhead.
struct PanelStream {
  const std::byte* data = nullptr;
  int64_t stride = 0, each = 0;
};

class PackedWeight {
 public:
  // Whether the kernels take it: integer codes in bytes, bare or with an f32 or bf16 scale that is constant or tiled on
  // a single contracted axis.
  static bool Packs(const DotOperand& weight, const std::vector<int>& contract);
  static bool Packs(const DotParts& weight, const std::vector<int>& contract);

  // `contract` lists the axes that products sum over; the others stay, in their order. A usage error unless Packs.
  PackedWeight(const Run& run, const DotOperand& weight, std::vector<int> contract);
  PackedWeight(const Run& run, const DotParts& weight, std::vector<int> contract);

  const Shape& shape() const { return shape_; }  // of the weight as given
  int64_t tile() const { return tile_; }         // along K; 0: none
  int64_t bytes() const;                         // of panels, scales and zero points
  bool four_bits() const { return four_bits_; }

  const std::vector<int>& contract() const { return contract_; }
  int64_t depth() const { return streamed_.k; }  // of a product's sum

  // The codes it was made from.
  Tensor Unpacked() const;

  // Rows of codes [M, K] with a scale each [M, 1], gapless, times weights of one depth: f32 [lead…, weight free…] with
  // M rows in `lead`, the bits of PackedDot. For products that run again and again (serving): nothing about a weight is
  // looked up anew, and few rows stream the weights together. Only where each TakesRows.
  bool TakesRows() const { return streamed_.scale.data != nullptr; }
  static std::vector<Tensor> MultiplyRows(const Run& run, std::span<const PackedWeight* const> weights,
                                          const Tensor& codes, const Tensor& scale, std::span<const int64_t> lead);

  // What the workers of such a product of few rows begin with.
  static PanelStream StreamOf(std::span<const PackedWeight* const> weights, int workers);

  // Whether PackedDot takes this left operand.
  bool Takes(const DotOperand& lhs, const std::vector<int>& lhs_contract) const;
  bool Takes(const DotParts& lhs, const std::vector<int>& lhs_contract) const;

 private:
  void PackScales(const Tensor& values);
  void Gather();
  // The weight as the right side of a dot; its codes are in the panels, so they are meta here.
  DotParts Parts() const;
  void Multiply(const Run& run, const Tensor& rows, const kernels::ScaleEpilogue& epilogue, Tensor& out) const;
  kernels::MatMulU4Args ArgsU4(const Run& run, const Tensor& rows, const kernels::ScaleEpilogue& epilogue,
                               Tensor& out) const;
  kernels::MatMulI8Args ArgsI8(const Run& run, const Tensor& rows, const kernels::ScaleEpilogue& epilogue,
                               Tensor& out) const;

  friend Tensor PackedDot(const Run& run, const DotOperand& lhs, const std::vector<int>& lhs_contract,
                          const PackedWeight& weight, std::optional<DType> preferred);
  friend Tensor PackedDot(const Run& run, const DotParts& lhs, const std::vector<int>& lhs_contract,
                          const PackedWeight& weight, DType result);

  // All that MultiplyRows reads: a model's other weights stream through the caches between two visits, so each line
  // costs a trip to memory.
  struct Streamed {
    const std::byte* panels = nullptr;
    int64_t panel_bytes = 0;  // of 16 columns
    int64_t k = 0, n = 0, tile = 0;
    const int32_t* col_sums = nullptr;
    kernels::ScaleView<float> scale;  // of panel_scales_; null where scales are of another kind
    bool four_bits = false;
  };

  Streamed streamed_;
  Shape free_;  // of the weight's axes that stay
  Shape shape_;
  std::vector<int> contract_;
  Format format_;
  bool four_bits_;
  int64_t k_ = 0, n_ = 0, tile_ = 0;
  Tensor panels_, col_sums_;          // u8 or i8 bytes; i32
  std::optional<Tensor> scale_;       // as given; meta where panel_scales_ has it
  std::optional<Tensor> zero_point_;  // as given
  Tensor panel_scales_;               // f32 without zero points, in the order of the panels: [panels, tiles, 16]
};

// lhs [..., K axes, ...] (codes, or quantized per row, tiles like the weight's or none) times the weight:
// [lhs free…, weight free…]. The bits of FastDot with the array that was packed. A usage error unless the weight takes
// lhs.
Tensor PackedDot(const Run& run, const DotOperand& lhs, const std::vector<int>& lhs_contract,
                 const PackedWeight& weight, std::optional<DType> preferred = std::nullopt);
Tensor PackedDot(const Run& run, const DotParts& lhs, const std::vector<int>& lhs_contract, const PackedWeight& weight,
                 DType result);

}  // namespace octavo::quant
