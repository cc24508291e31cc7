#include <span>

#include "octavo/base/error.h"
#include "octavo/quant/aqt.h"

namespace octavo::quant {
namespace {

AqtSide Side(const AqtNumerics& numerics, AqtNoise noise = AqtNoise::kNone) {
  AqtSide side;
  side.numerics = numerics;
  side.noise = noise;
  return side;
}

AqtProduct Product(const AqtNumerics& numerics, AqtNoise gradient_noise = AqtNoise::kNone) {
  AqtProduct product;
  product.lhs = Side(numerics, gradient_noise);
  product.rhs = Side(numerics);
  return product;
}

std::optional<DType> AutomaticAccumulator(const AqtProduct& product) {
  using Kind = AqtNumerics::Kind;
  const Kind lhs = product.lhs.numerics.kind, rhs = product.rhs.numerics.kind;
  if (lhs == Kind::kInteger && rhs == Kind::kInteger) return DType::kI32;
  if (lhs == Kind::kFp8 || rhs == Kind::kFp8) return DType::kF32;
  return std::nullopt;
}

}  // namespace

AqtNumerics AqtNumerics::Integer(int bits) {
  if (bits < 2 || bits > 8) ThrowUsage("AQT: {} bits; possible are 2 … 8, e4m3, e5m2 and none", bits);
  AqtNumerics result;
  result.kind = Kind::kInteger;
  result.bits = bits;
  return result;
}

AqtNumerics AqtNumerics::Fp8(Format format) {
  if (format != Format::kF8E4M3FN && format != Format::kF8E5M2) {
    ThrowUsage("AQT: format {}; possible are float8_e4m3fn and float8_e5m2", Info(format).name);
  }
  AqtNumerics result;
  result.kind = Kind::kFp8;
  result.fp8 = format;
  return result;
}

Format AqtNumerics::format() const {
  if (kind == Kind::kFp8) return fp8;
  return bits == 4 ? Format::kInt4 : Format::kInt8;
}

float AqtNumerics::quant_bound() const {
  return kind == Kind::kFp8 ? Info(fp8).max_value : static_cast<float>(1 << (bits - 1)) - 0.5f;
}

float AqtNumerics::clip() const { return kind == Kind::kFp8 ? Info(fp8).max_value : quant_bound() - 0.5f; }

AqtNumerics ParseAqtBits(std::string_view text) {
  if (text.empty() || text == "none") return AqtNumerics::None();
  if (text == "e4m3") return AqtNumerics::Fp8(Format::kF8E4M3FN);
  if (text == "e5m2") return AqtNumerics::Fp8(Format::kF8E5M2);
  if (text.size() == 1 && text[0] >= '0' && text[0] <= '9') return AqtNumerics::Integer(text[0] - '0');
  ThrowUsage("AQT bits '{}': possible are 2 … 8, e4m3, e5m2 and none", text);
}

AqtNoise ParseAqtNoise(std::string_view text) {
  if (text == "jax.uniform") return AqtNoise::kUniform;
  if (text == "custom-1") return AqtNoise::kSixteenBits;
  ThrowUsage("AQT stochastic rounding '{}': possible are jax.uniform, custom-1", text);
}

AqtConfig AqtConfigV3(const AqtBits& bits, AqtNoise noise, std::optional<DType> grad_rhs_accumulator,
                      int64_t local_shards) {
  AqtConfig config{Product(bits.forward), Product(bits.grad_lhs, noise), Product(bits.grad_rhs, noise)};
  config.forward.accumulator = DType::kI32;
  config.grad_lhs.accumulator = DType::kI32;
  config.grad_rhs.accumulator = grad_rhs_accumulator;
  config.grad_rhs.local_shards = local_shards;
  return config;
}

AqtConfig AqtConfigV4(const AqtBits& bits, AqtNoise noise, int64_t local_shards) {
  AqtConfig config{Product(bits.forward), Product(bits.grad_lhs, noise), Product(bits.grad_rhs, noise)};
  for (AqtProduct* product : {&config.forward, &config.grad_lhs, &config.grad_rhs}) {
    product->accumulator = AutomaticAccumulator(*product);
  }
  config.grad_rhs.local_shards = local_shards;
  return config;
}

AqtConfig AqtDotGeneralMake(const AqtNumerics& lhs, const AqtNumerics& rhs) {
  AqtConfig config;
  config.forward.lhs = Side(lhs);
  config.forward.rhs = Side(rhs);
  config.forward.accumulator = AutomaticAccumulator(config.forward);
  if (lhs.kind != rhs.kind) config.forward.accumulator = std::nullopt;  // this maker asks for both sides
  config.grad_lhs.use_forward_quant = rhs.kind != AqtNumerics::Kind::kNone;
  config.grad_rhs.use_forward_quant = lhs.kind != AqtNumerics::Kind::kNone;
  return config;
}

void SetAqtClippingScale(AqtConfig& config, double scale) {
  if (!(scale > 0)) ThrowUsage("AQT: clipping scale {} must be positive", scale);
  for (AqtProduct* product : {&config.forward, &config.grad_lhs, &config.grad_rhs}) {
    for (AqtSide* side : {&product->lhs, &product->rhs}) {
      side->clipping_scale = scale;
      side->numerics.clip_gradient = scale < 1.0;
    }
  }
}

void SetAqtPerTensor(AqtConfig& config, std::span<const double> constant_bounds) {
  AqtSide* sides[] = {&config.forward.lhs,  &config.forward.rhs,  &config.grad_lhs.lhs,
                      &config.grad_lhs.rhs, &config.grad_rhs.lhs, &config.grad_rhs.rhs};
  if (!constant_bounds.empty() && constant_bounds.size() != std::size(sides)) {
    ThrowUsage(
        "constant_bound_config: {} numbers, expected 6 (forward lhs, rhs; gradient towards lhs: g, rhs; towards "
        "rhs: g, lhs)",
        constant_bounds.size());
  }
  for (size_t i = 0; i < std::size(sides); ++i) {
    sides[i]->per_tensor = true;
    if (constant_bounds.empty()) continue;
    if (!(constant_bounds[i] > 0)) ThrowUsage("constant_bound_config: bound {} must be positive", constant_bounds[i]);
    sides[i]->constant_bound = constant_bounds[i];
  }
}

}  // namespace octavo::quant
