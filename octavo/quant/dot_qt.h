// The training form of a quantized dot: the forward product and both gradients, each product with its own formats,
// ranges, tiles and noise. Gradients go straight through the rounding; outside a clipped range they are 0. Used by the
// training providers; keeps no state: what backward needs is in the residuals, running ranges are given from outside.
//
// Backward, for x in {lhs, rhs} with y the other operand:
//   y        the quantized operand, or the original one if asked, if its scales are tiled, or in block formats
//   g        the gradient, times the scale of y when y is quantized; then quantized along the axes that remain
//   grad x = g · y, the codes of y without a scale
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "octavo/base/rng.h"
#include "octavo/quant/dot.h"
#include "octavo/quant/how_to_quantize.h"
#include "octavo/quant/quantize.h"
#include "octavo/quant/sparsity.h"

namespace octavo::quant {

// One operand of the forward product.
struct ForwardOperand {
  std::optional<Format> format;  // nullopt: stays float
  Calibration calibration;
  bool per_tensor = false;  // no scales per channel
};

// One of the two gradient products.
struct GradientProduct {
  std::optional<Format> format;  // of the incoming gradient; nullopt: stays float
  Calibration calibration;
  bool per_tensor = false;
  std::optional<TileSize> tile;  // cuts the contracted axis of the gradient that is listed last
  Rounding rounding = Rounding::kNearest;
  std::vector<int> noise_axes = {0};
  std::optional<Format> residual_format;  // for a residual that is still float
  Calibration residual_calibration;
};

struct DotQtConfig {
  ForwardOperand lhs, rhs;
  std::optional<TileSize> tile;  // of both forward operands, on the contracted axis listed last
  GradientProduct grad_lhs, grad_rhs;
  bool original_residuals = false;
  bool mask_gradients = true;
  std::optional<SparsityPattern> rhs_sparsity;
};

// How a forward operand is quantized; nullopt if it stays float.
std::optional<HowToQuantize> LeftHow(const DotQtConfig& config, const Shape& lhs, const DotDims& dims);
std::optional<HowToQuantize> RightHow(const DotQtConfig& config, const Shape& rhs, const DotDims& dims);

struct PreparedWeight;  // weight_cache.h

// What a caller has already: ranges from elsewhere (running averages) instead of this call's data, the right operand as
// RightHow quantizes it.
struct DotQtGiven {
  const CalibrationRange* lhs = nullptr;
  const CalibrationRange* rhs = nullptr;
  std::shared_ptr<const PreparedWeight> weight = nullptr;
  const Tensor* out = nullptr;  // the output of an earlier call with the same operands: only residuals are made
};
// The right operand prepared for that: quantized, packed for the forward product and, if asked, for the gradient of the
// left operand. Not for a config with sparsity.
PreparedWeight PrepareWeight(const Run& run, const Tensor& rhs, int lhs_rank, const DotDims& dims,
                             const DotQtConfig& config, bool backward);

struct DotQtResiduals {
  DotOperand lhs, rhs;                   // as multiplied
  std::optional<Tensor> lhs_in, rhs_in;  // the originals, kept only where backward needs them
  std::optional<CalibrationRange> lhs_range, rhs_range;
  std::optional<Tensor> rhs_mask;  // of the sparsity
  std::shared_ptr<const PreparedWeight> weight;
  DotDims dims;
};
struct DotQtForward {
  Tensor out;
  DotQtResiduals residuals;
};
DotQtForward DotGeneralQt(const Run& run, const Tensor& lhs, const Tensor& rhs, const DotDims& dims,
                          const DotQtConfig& config, const DotQtGiven& given = {});

// What went into a gradient product; for tests and statistics.
struct GradientTrace {
  std::optional<Tensor> scaled_grad;  // the gradient as it was quantized
  std::optional<QArray> grad, residual;
  std::optional<Tensor> noise;
};
struct DotQtGradients {
  Tensor lhs, rhs;
  GradientTrace lhs_trace, rhs_trace;
};
// Which gradients somebody uses; the others stay undefined.
struct Wanted {
  bool lhs = true, rhs = true;
};
// Both gradients draw the same noise from `key`, which is needed only with stochastic rounding. The traces are filled
// only if asked for.
DotQtGradients DotGeneralQtBackward(const Run& run, const DotQtResiduals& residuals, const DotQtConfig& config,
                                    const Tensor& grad, std::optional<RngKey> key = std::nullopt, bool trace = false,
                                    Wanted wanted = {});

}  // namespace octavo::quant
