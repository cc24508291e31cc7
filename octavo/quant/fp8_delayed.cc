#include "octavo/quant/fp8_delayed.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <utility>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/base/float_mode.h"
#include "octavo/numerics/small_float.h"
#include "octavo/quant/dot_axes.h"
#include "octavo/quant/dot_parts.h"
#include "octavo/quant/element.h"
#include "octavo/quant/health.h"
#include "octavo/quant/quantize_run.h"

namespace octavo::quant {
namespace {

Tensor One(float value) { return Tensor::FromValues<float>({1}, DType::kF32, std::vector<float>{value}); }

void CheckMeta(const Fp8Meta& meta) {
  const bool good = meta.scale.defined() && meta.amax_history.defined() && meta.scale.dtype() == DType::kF32 &&
                    meta.amax_history.dtype() == DType::kF32 && meta.scale.size() == 1 &&
                    meta.amax_history.rank() == 1 && meta.amax_history.size() > 0;
  if (!good)
    ThrowUsage("Fp8: state {} {}, expected f32[1] and f32[length]", meta.scale.ToString(),
               meta.amax_history.ToString());
}

void CheckFp8(Format format) {
  if (Info(format).bits != 8 || !SmallFloatEncoder::Handles(format)) {
    ThrowUsage("QuantizeFp8: {} is not an fp8 format", Info(format).name);
  }
}

float ScaleOf(const Fp8Meta& meta) { return meta.scale.Contiguous().Values<float>()[0]; }

// A float tensor times one factor that takes its dtype.
Tensor TimesFactor(const Tensor& tensor, float factor) {
  std::vector<int64_t> ones(static_cast<size_t>(tensor.rank()), 1);
  return TimesScale(tensor, CastFloat(One(factor).Reshape(ones), tensor.dtype()));
}

// The operand of the product, and its scale where that is applied to sums.
struct Quantized {
  DotOperand operand;
  Fp8Meta meta;
};
Quantized QuantizeOperand(const Run& run, std::initializer_list<Spot> spots, const Tensor& x, const Fp8Meta& old,
                          Format format, Fp8DotForm form) {
  Fp8Meta meta = UpdatedFp8Meta(old, AmaxOf(run, x), format);
  const Codes codes = QuantizeFp8(run, x, format, ScaleOf(meta));
  const std::vector<int64_t> ones(static_cast<size_t>(x.rank()), 1);
  const QArray array{codes.values, CastFloat(One(ScaleOf(meta)).Reshape(ones), x.dtype()), std::nullopt, format};
  for (Spot spot : spots) ObserveHealth(run, spot, x, array, false);
  if (form == Fp8DotForm::kDirect) return {codes, std::move(meta)};
  return {DequantizeFp8(codes, ScaleOf(meta), x.dtype()), std::move(meta)};
}

// The product of two operands in `dtype`, times the product of their scales (f32, then rounded to the dtype).
Tensor ScaledProduct(const Run& run, const DotOperand& a, float a_scale, const DotOperand& b, float b_scale,
                     const DotDims& dims, DType dtype, Fp8DotForm form) {
  const Tensor raw = FloatProduct(run, PartsOf("Fp8Dot", a).side, PartsOf("Fp8Dot", b).side, dims, dtype);
  return form == Fp8DotForm::kQdq ? raw : TimesFactor(raw, a_scale * b_scale);
}

}  // namespace

Fp8Meta InitialFp8Meta(int64_t history_length) {
  if (history_length < 1) ThrowUsage("Fp8: a history of {} steps", history_length);
  return {One(1.0f), Tensor::Zeros({history_length}, DType::kF32)};
}

Fp8DotState InitialFp8DotState(int64_t history_length) {
  return {InitialFp8Meta(history_length), InitialFp8Meta(history_length), InitialFp8Meta(history_length)};
}

float Fp8ScaleFromAmax(float amax, float scale, float fp8_max, int margin) {
  const ScopedFloatMode mode;
  float factor = fp8_max / amax / std::ldexp(1.0f, margin);
  if (!(amax > 0.0f) || !IsFiniteBits(amax)) factor = 1.0f / scale;
  return 1.0f / factor;
}

float AmaxOf(const Tensor& tensor) {
  const HowToQuantize whole;
  return CastFloat(*Calibrate(tensor, whole).absmax, DType::kF32).Values<float>()[0];
}

float AmaxOf(const Run& run, const Tensor& tensor) {
  Run plain = run;
  plain.arithmetic.non_finite = NonFinite::kPropagate;
  const HowToQuantize whole;
  return CastFloat(*Calibrate(plain, tensor, whole).absmax, DType::kF32).Values<float>()[0];
}

Fp8Meta UpdatedFp8Meta(const Fp8Meta& meta, float amax, Format format) {
  CheckMeta(meta);
  const std::vector<float> old = meta.amax_history.ToVector<float>();
  float largest = old[0];
  for (float value : old) largest = MaxNan(largest, value);
  std::vector<float> history(old.size());
  std::rotate_copy(old.begin(), old.begin() + 1, old.end(), history.begin());
  history[0] = amax;
  return {One(Fp8ScaleFromAmax(largest, ScaleOf(meta), Info(format).max_value)),
          Tensor::FromValues<float>(meta.amax_history.shape(), DType::kF32, history)};
}

Fp8Meta MergedFp8Meta(const Fp8Meta& a, const Fp8Meta& b) {
  CheckMeta(a);
  CheckMeta(b);
  if (a.amax_history.shape() != b.amax_history.shape()) {
    ThrowUsage("Fp8: histories of {} and {} steps cannot be merged", a.amax_history.size(), b.amax_history.size());
  }
  std::vector<float> x = a.amax_history.ToVector<float>(), y = b.amax_history.ToVector<float>();
  for (size_t i = 0; i < x.size(); ++i) x[i] = MaxNan(x[i], y[i]);
  return {One(MaxNan(ScaleOf(a), ScaleOf(b))), Tensor::FromValues<float>(a.amax_history.shape(), DType::kF32, x)};
}

Codes QuantizeFp8(const Tensor& x, Format format, float scale) {
  CheckFp8(format);
  const ScopedFloatMode mode;
  const Tensor packed = x.Contiguous();
  Codes result{Tensor::Empty(x.shape(), DType::kU8), format};
  uint8_t* out = result.values.MutableData<uint8_t>();
  WithElement("QuantizeFp8", x.dtype(), [&](auto element) {
    using E = decltype(element);
    const float by = E::Round(scale);
    for (auto stored : packed.Values<typename E::Stored>()) {
      *out++ = static_cast<uint8_t>(ConvertTo(format, E::Round(E::Load(stored) / by), E::kDType));
    }
  });
  return result;
}

Codes QuantizeFp8(const Run& run, const Tensor& x, Format format, float scale) {
  CheckFp8(format);
  if (run.reference) return QuantizeFp8(x, format, scale);
  const ScopedFloatMode mode;
  const Tensor packed = x.Contiguous();
  Codes result{Tensor::Empty(x.shape(), DType::kU8), format};
  const SmallFloatEncoder small(format);
  uint8_t* out = result.values.MutableData<uint8_t>();
  WithElement("QuantizeFp8", x.dtype(), [&](auto element) {
    using E = decltype(element);
    const float by = E::Round(scale);
    const auto* in = packed.Data<typename E::Stored>();
    run.pool.ParallelFor(x.size(), 4096, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) out[i] = small(E::Round(E::Load(in[i]) / by));
    });
  });
  return result;
}

Tensor DequantizeFp8(const Codes& codes, float scale, DType dtype) {
  const ScopedFloatMode mode;
  std::vector<int64_t> ones(static_cast<size_t>(codes.values.rank()), 1);
  return Dequantize({codes.values, CastFloat(One(scale).Reshape(ones), dtype), std::nullopt, codes.format});
}

Fp8DotForward Fp8Dot(const Run& run, const Tensor& x, const Tensor& kernel, const DotDims& dims,
                     const Fp8DotState& state, const Fp8DotConfig& config) {
  CheckDot("Fp8Dot", x.shape(), kernel.shape(), dims);
  const ScopedFloatMode mode;
  const DType dtype = kernel.dtype();
  Quantized qx = QuantizeOperand(run, {{ProductKind::kForward, OperandSide::kLhs}}, CastFloat(x, dtype), state.input,
                                 config.forward, config.form);
  Quantized qk = QuantizeOperand(run, {{ProductKind::kForward, OperandSide::kRhs}}, kernel, state.kernel,
                                 config.forward, config.form);
  Tensor out = ScaledProduct(run, qx.operand, ScaleOf(qx.meta), qk.operand, ScaleOf(qk.meta), dims, dtype, config.form);
  return {std::move(out),
          std::move(qx.meta),
          std::move(qk.meta),
          std::move(qx.operand),
          std::move(qk.operand),
          x.dtype(),
          dims};
}

Fp8DotGradients Fp8DotBackward(const Run& run, const Fp8DotForward& forward, const Fp8DotState& state,
                               const Fp8DotConfig& config, const Tensor& grad) {
  if (grad.shape() != forward.out.shape()) {
    ThrowUsage("Fp8DotBackward: the gradient is {}, the output was {}", grad.shape(), forward.out.shape());
  }
  const ScopedFloatMode mode;
  const DType dtype = forward.out.dtype();
  Quantized g =
      QuantizeOperand(run, {{ProductKind::kGradLhs, OperandSide::kLhs}, {ProductKind::kGradRhs, OperandSide::kLhs}},
                      CastFloat(grad, dtype), state.output_grad, config.gradient, config.form);
  const int x_rank = ShapeOf(forward.x).rank(), k_rank = ShapeOf(forward.k).rank();
  const GradientAxes x_axes = AxesOfGradient(true, x_rank, k_rank, forward.dims);
  const GradientAxes k_axes = AxesOfGradient(false, x_rank, k_rank, forward.dims);
  const Tensor dx = ScaledProduct(run, g.operand, ScaleOf(g.meta), forward.k, ScaleOf(forward.kernel), x_axes.dims,
                                  dtype, config.form);
  const Tensor dk = ScaledProduct(run, g.operand, ScaleOf(g.meta), forward.x, ScaleOf(forward.input), k_axes.dims,
                                  dtype, config.form);
  return {CastFloat(dx.Permute(x_axes.order), forward.x_dtype).Contiguous(), dk.Permute(k_axes.order).Contiguous(),
          std::move(g.meta)};
}

}  // namespace octavo::quant
