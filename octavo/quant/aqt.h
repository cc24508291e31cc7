// AQT's quantized dot: forward and both gradient products, each with two quantized sides. Differs from dot_qt.h in
// every detail that costs bits: scales are guarded at zero only, values are multiplied by the rounded reciprocal of the
// scale and clipped to ±127 before rounding, backward products quantize the original operands anew, weight gradients
// may be cut into local shards with scales of their own. Used by the AQT recipes, in training and (frozen weights) in
// serving.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "octavo/base/rng.h"
#include "octavo/quant/dot.h"
#include "octavo/quant/dot_qt.h"
#include "octavo/quant/run.h"
#include "octavo/tensor/qarray.h"

namespace octavo::quant {

// What one side becomes. Integers of 2 … 8 bits (4 bits are stored as int4, the others as int8), e4m3 or e5m2, or
// nothing.
struct AqtNumerics {
  enum class Kind : uint8_t { kNone, kInteger, kFp8 } kind = Kind::kNone;
  int bits = 8;
  Format fp8 = Format::kF8E4M3FN;
  bool clip_gradient = false;  // integers: gradients of values beyond the clip become 0

  static AqtNumerics None() { return {}; }
  static AqtNumerics Integer(int bits);  // a usage error outside 2 … 8
  static AqtNumerics Fp8(Format format);
  Format format() const;      // of the stored codes
  float quant_bound() const;  // what the largest magnitude is mapped to: 127.5, 7.5, 448, 57344
  float clip() const;         // integers: values are clipped to ± this before rounding: 127, 7
};
// "", "none": nothing; "2" … "8"; "e4m3", "e5m2".
AqtNumerics ParseAqtBits(std::string_view text);

enum class AqtNoise : uint8_t { kNone, kUniform, kSixteenBits };
AqtNoise ParseAqtNoise(std::string_view text);  // "jax.uniform", "custom-1"
Tensor MakeAqtNoise(RngKey key, const Shape& shape, AqtNoise noise);

struct AqtSide {
  AqtNumerics numerics;
  std::optional<double> constant_bound;  // a fixed range instead of the largest magnitude
  double clipping_scale = 0;             // > 0: multiplies the largest magnitude
  bool per_tensor = false;               // one scale for all; else one per position on axes that are not contracted
  AqtNoise noise = AqtNoise::kNone;
};

// One product. In the gradient products the left side is always the incoming gradient.
struct AqtProduct {
  AqtSide lhs, rhs;
  std::optional<DType> accumulator;  // i32, f32 or bf16; nullopt: i32 for integers, else the dtype of the operands
  bool use_forward_quant = false;    // gradients: the other operand as quantized forward, its scale moved into g
  int64_t local_shards = 0;          // > 0: the first contracted axis is cut into so many blocks with own scales
};

struct AqtConfig {
  AqtProduct forward, grad_lhs, grad_rhs;
  int64_t tile = 0;  // > 0: every contracted axis is cut into tiles of this length, each a product of its own
};

// The reference's three makers. Bits apply to both sides of a product; noise to the gradient.
struct AqtBits {
  AqtNumerics forward, grad_lhs, grad_rhs;
};
// Int8 training: accumulators int32, int32 and, for the weight gradient, as given.
AqtConfig AqtConfigV3(const AqtBits& bits, AqtNoise noise, std::optional<DType> grad_rhs_accumulator,
                      int64_t local_shards = 0);
// Accumulators follow the numerics: int32 for two integers, f32 where either side is fp8.
AqtConfig AqtConfigV4(const AqtBits& bits, AqtNoise noise, int64_t local_shards = 0);
// Forward sides one by one; gradients in float on the forward-quantized operands.
AqtConfig AqtDotGeneralMake(const AqtNumerics& lhs, const AqtNumerics& rhs);

// All of the product's sides clip at `scale` times the largest magnitude; below 1 gradients beyond it are masked.
void SetAqtClippingScale(AqtConfig& config, double scale);
// One scale per tensor on all six sides, and, unless empty, six fixed bounds: forward lhs, rhs, gradient towards lhs:
// g, rhs, towards rhs: g, lhs. Another count, or a bound that is not positive, is an error.
void SetAqtPerTensor(AqtConfig& config, std::span<const double> constant_bounds = {});

struct PreparedWeight;  // weight_cache.h
// The right operand quantized, packed for the forward product and, if asked, for the gradient of the left operand.
PreparedWeight AqtPrepareWeight(const Run& run, const Tensor& rhs, const DotDims& dims, const AqtConfig& config,
                                bool backward);

struct AqtResiduals {
  Tensor lhs, rhs;                     // the originals, tiled if the config says so
  std::optional<QArray> lhs_q, rhs_q;  // forward codes
  DotDims dims;                        // of the tiled operands
  DotDims outer_dims;                  // of the operands as given
  Shape lhs_shape, rhs_shape;          // as given
  std::shared_ptr<const PreparedWeight> weight;
};
struct AqtForward {
  Tensor out;
  AqtResiduals residuals;
};
// `weight`, if given, is `rhs` prepared for this config.
AqtForward AqtDotGeneral(const Run& run, const Tensor& lhs, const Tensor& rhs, const DotDims& dims,
                         const AqtConfig& config, std::shared_ptr<const PreparedWeight> weight = nullptr);

struct AqtGradients {
  Tensor lhs, rhs;
  // What was multiplied, for tests and statistics.
  std::optional<QArray> lhs_g, lhs_other, rhs_g, rhs_other;
  std::optional<Tensor> lhs_noise, rhs_noise;
};
// `key` is needed only with noise.
AqtGradients AqtDotGeneralBackward(const Run& run, const AqtResiduals& residuals, const AqtConfig& config,
                                   const Tensor& grad, std::optional<RngKey> key = std::nullopt, Wanted wanted = {});

// Serving: the weight quantized once (tiled shape [..., tiles, tile, ...] on contracted axes), activations as they
// come. Same bits as the training forward.
QArray AqtFreeze(const Run& run, const Tensor& rhs, const DotDims& dims, const AqtConfig& config);
Tensor AqtServe(const Run& run, const Tensor& lhs, const QArray& frozen, const DotDims& dims, const AqtConfig& config);

// One side alone: codes and scales over the given shared axes. The first form is the plain scalar one; the second runs
// on threads and kernels and has the same bits.
QArray AqtQuantize(const Tensor& array, const AqtSide& side, const std::vector<int>& shared_axes,
                   const Tensor* noise = nullptr, const Arithmetic& arithmetic = {});
QArray AqtQuantize(const Run& run, const Tensor& array, const AqtSide& side, const std::vector<int>& shared_axes,
                   const Tensor* noise = nullptr);

}  // namespace octavo::quant
