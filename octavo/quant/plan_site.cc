#include "octavo/quant/plan_site.h"

#include <algorithm>

#include "octavo/base/error.h"
#include "octavo/kernels/matmul_i8.h"
#include "octavo/ops/dot_dims.h"
#include "octavo/quant/dot_axes.h"

namespace octavo::quant {
namespace {

bool IsIntegerFormat(std::optional<Format> format) { return format && Info(*format).kind == FormatKind::kInteger; }

// Elements that share a scale, axis by axis: "1 x 1 x 512".
std::string ExtentOf(const Shape& shape, const Shape& scales) {
  if (scales.size() == 1) return "all";
  std::string text;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (axis > 0) text += " x ";
    text += fmt::format("{}", scales[axis] == 0 ? 0 : shape[axis] / scales[axis]);
  }
  return text;
}

OperandPlan FloatOperand() { return {std::nullopt, "", "", "", 0}; }

// An operand with a scale per position of its kept axes, tiles on the contracted ones.
OperandPlan Describe(std::string_view where, const Shape& shape, const HowToQuantize& how) {
  OperandPlan plan;
  plan.format = how.format;
  const Shape scales = ScaleShape(where, shape, how);
  const bool fixed = how.calibration.method == CalibrationMethod::kFixed;
  plan.scales = fixed ? 1 : scales.size();
  plan.extent = fixed ? "all" : ExtentOf(shape, scales);
  plan.calibration = ToString(how.calibration);
  if (fixed || scales.size() == 1) {
    plan.granularity = "per tensor";
  } else if (!how.granularity.tiled_axes.empty()) {
    const auto& [axis, tile] = *how.granularity.tiled_axes.begin();
    plan.granularity = fmt::format("tiles of {}", TileElements(tile, shape[axis]));
  } else {
    plan.granularity = "per channel";
  }
  return plan;
}

OperandPlan ForwardCodes(Format format) { return {format, "codes of the forward pass", "", "", 0}; }

OperandPlan WholeTensor(Format format, std::string calibration) {
  return {format, "per tensor", "all", std::move(calibration), 1};
}

// The kernel of a product and why the faster ones declined.
void ChooseKernel(ProductPlan& product, int64_t tile) {
  for (const auto& [name, operand] : {std::pair("lhs", &product.lhs), std::pair("rhs", &product.rhs)}) {
    if (!operand->format) {
      product.declined.push_back(fmt::format("i8: {} stays float", name));
    } else if (!IsIntegerFormat(operand->format)) {
      product.declined.push_back(fmt::format("i8: {} is {}", name, Info(*operand->format).name));
    }
  }
  const bool any_codes = product.lhs.format || product.rhs.format;
  if (product.declined.empty() && tile > 0 && tile < 128) {
    product.declined.push_back(fmt::format("i8: tiles of {} are below 128, where the reference decodes first", tile));
  }
  product.kernel = product.declined.empty() ? "i8" : any_codes ? "f32 after decoding" : "f32";
}

int64_t TileOf(const Shape& shape, const std::optional<HowToQuantize>& how) {
  if (!how || how->granularity.tiled_axes.empty()) return 0;
  const auto& [axis, tile] = *how->granularity.tiled_axes.begin();
  const int64_t elements = TileElements(tile, shape[axis]);
  return elements == shape[axis] ? 0 : elements;
}

// Whether a dynamic scale of `how` is shared by positions of several tokens: any kept axis of an activation that has no
// scale of its own.
Coupling CouplingOf(const Shape& shape, const std::vector<int>& contract, const HowToQuantize& how, bool from_data) {
  if (!from_data || how.calibration.method == CalibrationMethod::kFixed) return Coupling::kNone;
  const Shape scales = ScaleShape("coupling", shape, how);
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const bool contracted = std::find(contract.begin(), contract.end(), axis) != contract.end();
    if (!contracted && shape[axis] > 1 && scales[axis] == 1) return Coupling::kBatch;
  }
  return Coupling::kNone;
}

void CheckExact(std::string_view where, const ProductPlan& product, int64_t k) {
  if (product.kernel == "i8" && k > kernels::kMaxExactSteps) {
    throw Error(ErrorCode::kUsage, fmt::format("{}: {} terms do not fit an exact int32 sum", where, k),
                fmt::format("the bound is {}; give the rule a tile_size", kernels::kMaxExactSteps));
  }
}

int64_t Contracted(const Shape& shape, const std::vector<int>& axes) {
  int64_t k = 1;
  for (int axis : axes) k *= shape[axis];
  return k;
}

// One backward product of a Qwix site. `operand` is the forward's other operand.
ProductPlan QwixGradient(std::string_view where, const GradientProduct& config, const Shape& grad, const Shape& other,
                         const ops::GradDot& dot, const OperandPlan& operand, bool reuses_codes) {
  ProductPlan product;
  int64_t tile = 0;
  if (config.format) {
    HowToQuantize how;
    how.format = *config.format;
    how.calibration = config.calibration;
    how.granularity = LeftGranularity(grad, dot.dims, config.tile);
    if (config.per_tensor) how.granularity.channelwise_axes.clear();
    product.lhs = Describe(where, grad, how);
    if (config.rounding != Rounding::kNearest) product.lhs.calibration += ", stochastic";
    tile = TileOf(grad, how);
  }
  if (reuses_codes && operand.format) product.rhs = ForwardCodes(*operand.format);
  ChooseKernel(product, tile);
  CheckExact(where, product, tile > 0 ? tile : Contracted(other, dot.dims.rhs_contract));
  return product;
}

void DescribeQwix(SitePlan& site, const QwixTreatment& treatment, bool backward) {
  const std::string where = site.site.ToString();
  const bool rhs_is_weight = !site.weight.empty() && !site.weight_is_lhs;
  const DotQtConfig config = ConfigOf(treatment, site.weight_is_lhs, rhs_is_weight);
  const std::optional<HowToQuantize> lhs = LeftHow(config, site.lhs, site.dims),
                                     rhs = RightHow(config, site.rhs, site.dims);
  site.forward.lhs = lhs ? Describe(where, site.lhs, *lhs) : FloatOperand();
  site.forward.rhs = rhs ? Describe(where, site.rhs, *rhs) : FloatOperand();
  if (treatment.static_activation) {
    (site.weight_is_lhs ? site.forward.rhs : site.forward.lhs).calibration += ", running average";
  }
  const int64_t tile = std::max(TileOf(site.lhs, lhs), TileOf(site.rhs, rhs));
  ChooseKernel(site.forward, tile);
  CheckExact(where, site.forward, tile > 0 ? tile : Contracted(site.lhs, site.dims.lhs_contract));
  if (lhs && !site.weight_is_lhs) {
    site.coupling =
        std::max(site.coupling, CouplingOf(site.lhs, site.dims.lhs_contract, *lhs, !treatment.static_activation));
  }
  if (rhs && !rhs_is_weight) {
    site.coupling =
        std::max(site.coupling, CouplingOf(site.rhs, site.dims.rhs_contract, *rhs, !treatment.static_activation));
  }
  if (!backward) return;
  const Shape out = DotShape(where, site.lhs, site.rhs, site.dims);
  const bool block = (lhs && Info(lhs->format).block > 0) || (rhs && Info(rhs->format).block > 0);
  const bool reuse = !config.original_residuals && tile == 0 && !block;
  const int lhs_rank = site.lhs.rank(), rhs_rank = site.rhs.rank();
  site.grad_lhs = QwixGradient(where, config.grad_lhs, out, site.rhs, ops::GradLhsDot(lhs_rank, rhs_rank, site.dims),
                               site.forward.rhs, reuse);
  site.grad_rhs = QwixGradient(where, config.grad_rhs, out, site.lhs, ops::GradRhsDot(lhs_rank, rhs_rank, site.dims),
                               site.forward.lhs, reuse);
}

// AQT describes its operands by the axes they share: the contracted ones of each product.
OperandPlan AqtOperand(std::string_view where, std::optional<Format> format, const Shape& shape,
                       const std::vector<int>& contract, const AqtTreatment& treatment, size_t slot, int64_t tile) {
  if (!format) return FloatOperand();
  if (treatment.constant_bounds[slot]) {
    return WholeTensor(*format, fmt::format("constant {}", *treatment.constant_bounds[slot]));
  }
  HowToQuantize how;
  how.format = *format;
  how.granularity = GranularityForDot(shape, contract, std::nullopt);
  if (treatment.per_tensor) how.granularity.channelwise_axes.clear();
  if (tile > 0) {
    for (int axis : contract) how.granularity.tiled_axes[axis] = tile;
  }
  return Describe(where, shape, how);
}

void DescribeAqt(SitePlan& site, const AqtTreatment& treatment, bool backward) {
  const std::string where = site.site.ToString();
  const std::optional<Format> lhs = site.weight_is_lhs ? treatment.weight : treatment.activation;
  const std::optional<Format> rhs = site.weight_is_lhs ? treatment.activation : treatment.weight;
  site.forward.lhs = AqtOperand(where, lhs, site.lhs, site.dims.lhs_contract, treatment, 0, treatment.tile);
  site.forward.rhs = AqtOperand(where, rhs, site.rhs, site.dims.rhs_contract, treatment, 1, treatment.tile);
  ChooseKernel(site.forward, 0);
  CheckExact(where, site.forward, treatment.tile > 0 ? treatment.tile : Contracted(site.lhs, site.dims.lhs_contract));
  const bool activation = site.weight_is_lhs ? rhs.has_value() : lhs.has_value();
  const bool constant = treatment.constant_bounds[site.weight_is_lhs ? 1 : 0].has_value();
  if (activation && treatment.per_tensor && !constant) site.coupling = Coupling::kBatch;
  if (!backward) return;
  const Shape out = DotShape(where, site.lhs, site.rhs, site.dims);
  const ops::GradDot dots[] = {ops::GradLhsDot(site.lhs.rank(), site.rhs.rank(), site.dims),
                               ops::GradRhsDot(site.lhs.rank(), site.rhs.rank(), site.dims)};
  ProductPlan* const products[] = {&site.grad_lhs, &site.grad_rhs};
  const std::optional<Format> formats[] = {treatment.grad_lhs, treatment.grad_rhs};
  const Shape* const others[] = {&site.rhs, &site.lhs};
  const std::optional<Format> codes[] = {rhs, lhs};
  for (size_t i : {0u, 1u}) {
    ProductPlan& product = *products[i];
    product.lhs = AqtOperand(where, formats[i], out, dots[i].dims.lhs_contract, treatment, 2 + 2 * i, 0);
    product.rhs = AqtOperand(where, formats[i], *others[i], dots[i].dims.rhs_contract, treatment, 3 + 2 * i, 0);
    if (treatment.forward_codes && codes[i]) product.rhs = ForwardCodes(*codes[i]);
    if (product.lhs.format && treatment.gradient_rounding != Rounding::kNearest)
      product.lhs.calibration += ", stochastic";
    ChooseKernel(product, 0);
  }
  if (treatment.grad_rhs && treatment.weight_gradient_shards > 1) {
    const int axis = dots[1].dims.lhs_contract.empty() ? -1 : dots[1].dims.lhs_contract.front();
    if (axis >= 0 && out[axis] % treatment.weight_gradient_shards != 0) {
      ThrowUsage("{}: {} shards of the weight gradient do not divide {} (axis {} of {})", where,
                 treatment.weight_gradient_shards, out[axis], axis, out);
    }
    for (OperandPlan* operand : {&site.grad_rhs.lhs, &site.grad_rhs.rhs}) {
      operand->granularity += fmt::format(", {} shards", treatment.weight_gradient_shards);
      operand->scales *= treatment.weight_gradient_shards;
    }
  }
}

void DescribeDelayed(SitePlan& site, const DelayedTreatment& treatment, bool backward) {
  const std::string history = fmt::format("history of {}", treatment.history);
  site.forward.lhs = WholeTensor(treatment.forward, history);
  site.forward.rhs = WholeTensor(treatment.forward, history);
  ChooseKernel(site.forward, 0);
  if (!backward) return;
  for (ProductPlan* product : {&site.grad_lhs, &site.grad_rhs}) {
    product->lhs = WholeTensor(treatment.gradient, history);
    product->rhs = ForwardCodes(treatment.forward);
    ChooseKernel(*product, 0);
  }
}

void DescribeBlock(SitePlan& site, const BlockTreatment& treatment, bool backward) {
  const std::string where = site.site.ToString();
  using Form = BlockTreatment::Form;
  const int64_t block = treatment.form == Form::kMxfp8 ? 32 : treatment.form == Form::kNvfp4 ? 16 : 0;
  const Format forward = treatment.form == Form::kNvfp4 ? Format::kF4E2M1FN : Format::kF8E4M3FN;
  const Format gradient = treatment.form == Form::kCurrentScaling ? Format::kF8E5M2 : forward;
  // Blocks run along the contracted axis that is listed last, or over all tokens where tokens are summed.
  const auto operand = [&](Format format, const Shape& shape, const std::vector<int>& contract, bool square,
                           bool tokens = false) {
    if (block == 0) return WholeTensor(format, "absmax");
    const int64_t k = tokens ? Contracted(shape, contract) : shape[contract.back()];
    if (k % block != 0) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("{}: {} contracted elements of {} are no multiple of {}", where, k, shape, block),
                  "leave this site out by a rule before, or choose another recipe");
    }
    OperandPlan plan{format, square ? fmt::format("blocks of {0} x {0}", block) : fmt::format("blocks of {}", block),
                     fmt::format("{}", block),
                     treatment.form == Form::kNvfp4 ? "absmax, e4m3 scales" : "absmax, e8m0 scales",
                     shape.size() / (square ? block * block : block)};
    return plan;
  };
  const bool square = treatment.form == Form::kNvfp4;
  site.forward.lhs = operand(forward, site.lhs, site.dims.lhs_contract, square && site.weight_is_lhs);
  site.forward.rhs = operand(forward, site.rhs, site.dims.rhs_contract, square && !site.weight_is_lhs);
  ChooseKernel(site.forward, 0);
  if (treatment.form != Form::kMxfp8) site.coupling = Coupling::kBatch;  // a scale of the whole tensor
  if (!backward) return;
  const Shape out = DotShape(where, site.lhs, site.rhs, site.dims);
  const ops::GradDot to_lhs = ops::GradLhsDot(site.lhs.rank(), site.rhs.rank(), site.dims);
  const ops::GradDot to_rhs = ops::GradRhsDot(site.lhs.rank(), site.rhs.rank(), site.dims);
  const bool left = site.weight_is_lhs;  // then the gradient of lhs is the weight's
  site.grad_lhs.lhs = operand(gradient, out, to_lhs.dims.lhs_contract, false, left);
  site.grad_lhs.rhs = operand(forward, site.rhs, to_lhs.dims.rhs_contract, square && !left, left);
  site.grad_rhs.lhs = operand(gradient, out, to_rhs.dims.lhs_contract, false, !left);
  site.grad_rhs.rhs = operand(forward, site.lhs, to_rhs.dims.rhs_contract, square && left, !left);
  if (treatment.form == Form::kNvfp4) {
    site.grad_lhs.lhs.calibration += ", stochastic";
    site.grad_rhs.lhs.calibration += ", stochastic";
    if (treatment.hadamard) {
      ProductPlan& weight_gradient = left ? site.grad_lhs : site.grad_rhs;
      weight_gradient.lhs.granularity += ", rotated";
      weight_gradient.rhs.granularity += ", rotated";
    }
  }
  ChooseKernel(site.grad_lhs, 0);
  ChooseKernel(site.grad_rhs, 0);
}

void DescribeGrouped(SitePlan& site, const GroupedTreatment& treatment, bool ragged) {
  const std::string where = site.site.ToString();
  const Shape& weight = site.weight_is_lhs ? site.lhs : site.rhs;
  const std::vector<int> contract = ragged               ? std::vector<int>{1}
                                    : site.weight_is_lhs ? site.dims.lhs_contract
                                                         : site.dims.rhs_contract;
  const int64_t k = Contracted(weight, contract);
  const int64_t group = treatment.group == 0 ? k : treatment.group;
  if (group > 0 && k % group != 0) {
    throw Error(ErrorCode::kUsage, fmt::format("{}: groups of {} do not divide K = {}", where, group, k),
                "use quantization_group_size=32, or 0 for one scale per output channel");
  }
  const int64_t groups = group == 0 ? 0 : weight.size() / group;
  OperandPlan weights{treatment.weight, treatment.group == 0 ? "per channel" : fmt::format("groups of {}", group),
                      fmt::format("{}", group), "absmax", groups};
  const Shape& activation = site.weight_is_lhs ? site.rhs : site.lhs;
  OperandPlan rows{treatment.activation, "per channel", fmt::format("{}", k), "absmax",
                   k == 0 ? 0 : activation.size() / k};
  site.forward.lhs = site.weight_is_lhs ? weights : rows;
  site.forward.rhs = site.weight_is_lhs ? rows : weights;
  site.forward.kernel = Info(treatment.weight).bits <= 4 ? "u4" : "i8";
}

// A ragged dot under Qwix or AQT: a scale per row of lhs, one per column of rhs shared by all groups.
void DescribeRagged(SitePlan& site, std::optional<Format> weight, std::optional<Format> activation,
                    std::optional<Format> gradient, bool backward) {
  if (!weight || !activation) {
    ThrowUsage("{}: a ragged dot quantizes both operands or none", site.site.ToString());
  }
  site.forward.lhs = {activation, "per channel", fmt::format("{}", site.lhs[1]), "absmax", site.lhs[0]};
  site.forward.rhs = {weight, "per channel, groups share", fmt::format("{} x {}", site.rhs[0], site.rhs[1]), "absmax",
                      site.rhs[2]};
  ChooseKernel(site.forward, 0);
  if (!backward || !gradient) return;
  site.grad_lhs.lhs = {gradient, "per channel", fmt::format("{}", site.rhs[2]), "absmax", site.lhs[0]};
  site.grad_lhs.rhs = ForwardCodes(*weight);
  site.grad_rhs.lhs = {gradient, "per channel", fmt::format("{}", site.lhs[0]), "absmax", site.rhs[2]};
  site.grad_rhs.rhs = ForwardCodes(*activation);
  ChooseKernel(site.grad_lhs, 0);
  ChooseKernel(site.grad_rhs, 0);
}

}  // namespace

void DescribeFloatSite(SitePlan& site) {
  for (ProductPlan* product : {&site.forward, &site.grad_lhs, &site.grad_rhs}) product->kernel = "f32";
  site.weight_bits = site.weight_elements * SizeOf(site.dtype) * 8;
}

void DescribeSite(SitePlan& site, bool ragged, bool backward) {
  const std::string where = site.site.ToString();
  for (ProductPlan* product : {&site.grad_lhs, &site.grad_rhs}) product->kernel = "f32";
  if (const auto* qwix = std::get_if<QwixTreatment>(&*site.treatment)) {
    if (ragged) {
      DescribeRagged(site, qwix->weight, qwix->activation, qwix->gradient, backward);
    } else {
      DescribeQwix(site, *qwix, backward);
    }
  } else if (const auto* aqt = std::get_if<AqtTreatment>(&*site.treatment)) {
    if (ragged) {
      DescribeRagged(site, aqt->weight, aqt->activation, aqt->grad_lhs, backward);
    } else {
      DescribeAqt(site, *aqt, backward);
    }
  } else if (const auto* grouped = std::get_if<GroupedTreatment>(&*site.treatment)) {
    DescribeGrouped(site, *grouped, ragged);
  } else if (ragged) {
    ThrowUsage("{}: this recipe cannot do a {}", where, NameOf(site.site.op));
  } else if (const auto* delayed = std::get_if<DelayedTreatment>(&*site.treatment)) {
    DescribeDelayed(site, *delayed, backward);
  } else {
    DescribeBlock(site, std::get<BlockTreatment>(*site.treatment), backward);
  }
  const OperandPlan& weight = site.weight_is_lhs ? site.forward.lhs : site.forward.rhs;
  site.weight_bits = weight.format
                         ? site.weight_elements * Info(*weight.format).bits + weight.scales * SizeOf(site.dtype) * 8
                         : site.weight_elements * SizeOf(site.dtype) * 8;
  if (site.weight.empty()) site.weight_bits = 0;
}

}  // namespace octavo::quant
