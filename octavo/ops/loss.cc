#include "octavo/ops/loss.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/kernels/activation.h"
#include "octavo/kernels/cross_entropy.h"
#include "octavo/kernels/matmul_f32.h"
#include "octavo/kernels/reductions.h"
#include "octavo/ops/activation.h"
#include "octavo/ops/dot.h"
#include "octavo/ops/elementwise.h"
#include "octavo/ops/float_dot.h"
#include "octavo/ops/op_support.h"
#include "octavo/ops/permute.h"
#include "octavo/ops/profile.h"
#include "octavo/ops/tape.h"

namespace octavo::ops {
namespace {

using kernels::FloatResult;
using kernels::FloatSource;
using kernels::Stored;

Stored StoredAs(DType dtype) { return dtype == DType::kF32 ? Stored::kF32 : Stored::kBF16; }

FloatSource SourceOf(const Tensor& matrix) {  // any strides
  FloatSource source;
  source.data = DataOf(matrix);
  source.stored = StoredAs(matrix.dtype());
  source.rows = matrix.dim(0);
  source.cols = matrix.dim(1);
  source.row_stride = matrix.stride(0);
  source.col_stride = matrix.stride(1);
  return source;
}

FloatResult ResultOf(Tensor& matrix) {
  return {MutDataOf(matrix), StoredAs(matrix.dtype()), matrix.dim(0),
          matrix.dim(1),     matrix.stride(0),         matrix.stride(1)};
}

// The head as [E, V], whatever it is stored as, in the type of the product.
Operand HeadOperand(Context& context, const Var& hidden, const Parameter& head, const HeadOptions& options) {
  const Operand stored = Weight(context, head, options.tied && !options.unrounded ? DType::kBF16 : hidden.dtype());
  const Shape shape = stored.shape();
  const int64_t width = hidden.value.dim(hidden.value.rank() - 1);
  if (shape.rank() != 2 || shape[options.tied ? 1 : 0] != width) {
    ThrowUsage("LmHeadLoss at {}: {} is {}, the hidden states have {} features", context.path(), head.name, shape,
               width);
  }
  if (!options.tied || stored.quantized()) return stored;
  const int swap[] = {1, 0};
  const Var kernel = Permute(context, Var(stored.tensor(), stored.node), swap);
  return Operand{kernel.value, Role::kWeight, &head, kernel.node};
}

DotDims HeadDims(const Var& hidden) { return DotDims{{hidden.value.rank() - 1}, {0}, {}, {}}; }

// Targets as the loss kernel wants them: -1 where a token does not count.
Tensor CountedTargets(const Context& context, const Tensor& targets, const Tensor& segmentation, int64_t rows,
                      int64_t vocab) {
  if (targets.dtype() != DType::kI32 || segmentation.dtype() != DType::kI32 || targets.size() != rows ||
      segmentation.size() != rows) {
    ThrowUsage("LmHeadLoss at {}: targets {} and segments {}: expected i32 for {} rows", context.path(),
               targets.ToString(), segmentation.ToString(), rows);
  }
  const std::vector<int32_t> ids = targets.ToVector<int32_t>(), segments = segmentation.ToVector<int32_t>();
  Tensor result = Tensor::Empty({rows}, DType::kI32);
  const auto counted = result.MutableValues<int32_t>();
  for (size_t i = 0; i < counted.size(); ++i) {
    if (segments[i] != 0 && (ids[i] < 0 || ids[i] >= vocab)) {
      ThrowUsage("LmHeadLoss at {}: target {} at token {}, but the vocabulary has {} entries", context.path(), ids[i],
                 i, vocab);
    }
    counted[i] = segments[i] == 0 ? -1 : ids[i];
  }
  return result;
}

// Sums per sequence in double, sequences ascending.
double SumOverSequences(const std::vector<float>& values, const std::vector<int32_t>& starts) {
  const kernels::Sequences sequences = SequencesOf(starts);
  std::vector<double> sums(static_cast<size_t>(std::max<int64_t>(1, sequences.count)));
  kernels::SumPerSequence(values.data(), static_cast<int64_t>(values.size()), sequences, sums.data());
  return kernels::AddAscending(sums.data(), static_cast<int64_t>(sums.size()));
}

// Everything one pass over the rows needs and makes.
class HeadPass {
 public:
  HeadPass(Context& context, const Tensor& hidden, const Tensor& kernel, const HeadOptions& options,
           const LossSpec& spec, Tensor targets, bool gradients)
      : context_(context),
        hidden_(hidden),
        kernel_(kernel),
        options_(options),
        spec_(spec),
        targets_(std::move(targets)),
        vocab_(kernel.dim(1)),
        rows_(hidden.dim(0)),
        gradients_(gradients),
        scale_(static_cast<float>(options.logit_scale)),
        loss_(static_cast<size_t>(rows_)),
        z_part_(static_cast<size_t>(rows_)) {
    if (!gradients_) return;
    grad_hidden_ = Tensor::Empty(hidden.shape(), hidden.dtype());
    // In the order of the stored parameter: [E, V], or [V, E] seen as [E, V].
    grad_kernel_ =
        options.tied ? Tensor::Empty({vocab_, kernel.dim(0)}, DType::kF32) : Tensor::Empty(kernel.shape(), DType::kF32);
  }

  void Run() {
    const int64_t leaves = (rows_ + kernels::kLeaf - 1) / kernels::kLeaf;
    const int64_t step = std::max<int64_t>(1, (leaves + spec_.tiles - 1) / spec_.tiles) * kernels::kLeaf;
    const DType type = ProductType(hidden_.dtype(), kernel_.dtype());
    for (int64_t begin = 0; begin < rows_; begin += step) {
      const int64_t count = std::min(step, rows_ - begin);
      if (!logits_.defined() || logits_.dim(0) != count) logits_ = Tensor::Empty({count, vocab_}, type);
      MakeLogits(begin, count);
      LossOfRows(begin, count);
      if (gradients_) {
        GradHidden(begin, count);
        GradKernel(begin, count);
      }
    }
    logits_ = Tensor();
    capped_ = Tensor();
  }

  const std::vector<float>& loss() const { return loss_; }
  const std::vector<float>& z_part() const { return z_part_; }
  Tensor grad_hidden() const { return grad_hidden_; }
  // [E, V] view in the kernel's type.
  Tensor grad_kernel() {
    const Tensor rounded = CastTensor(context_, grad_kernel_, kernel_.dtype());
    return options_.tied ? rounded.Transpose() : rounded;
  }

 private:
  void Product(const kernels::MatMulF32Args& args, std::string_view pass) {
    const double macs = static_cast<double>(args.a.rows) * static_cast<double>(args.a.cols * args.b.cols);
    const Timed timed(context_.profile, context_.path(), "matmul", pass, macs);
    kernels::MatMulF32(context_.pool, context_.isa, context_.workspace, args);
  }

  kernels::MatMulF32Args Scaled() const {
    kernels::MatMulF32Args args;
    if (scale_ != 1) args.epilogue.row_scale = {&scale_, 0};
    return args;
  }

  void MakeLogits(int64_t begin, int64_t count) {
    kernels::MatMulF32Args args = Scaled();
    args.a = SourceOf(hidden_.Slice(0, begin, begin + count));
    args.b = SourceOf(kernel_);
    args.c = ResultOf(logits_);
    Product(args, "forward");
  }

  // Losses of the rows, and the gradient of the logits in their place.
  void LossOfRows(int64_t begin, int64_t count) {
    const Timed timed(context_.profile, context_.path(), "loss", "forward");
    Tensor seen = logits_;
    const kernels::ActivationSpec cap{kernels::Activation::kSoftCap, static_cast<float>(options_.soft_cap)};
    if (options_.soft_cap > 0) {
      if (!capped_.defined() || capped_.dim(0) != count) capped_ = Tensor::Empty(logits_.shape(), logits_.dtype());
      seen = capped_;
      kernels::ActivationForward(context_.pool, context_.isa, {cap, AsRows(logits_).rows, MutRowsOf(seen)});
    }
    std::vector<kernels::LossRow> state(static_cast<size_t>(count));
    const int32_t* targets = targets_.Data<int32_t>() + begin;
    const kernels::LossPiece piece{AsRows(seen).rows, 0, vocab_, targets};
    kernels::AddLossPiece(context_.pool, context_.isa, piece, state.data());
    const float z_loss = static_cast<float>(spec_.z_loss);
    kernels::FinishLoss(
        {count, vocab_, state.data(), targets, z_loss, loss_.data() + begin, z_part_.data() + begin, nullptr});
    if (!gradients_) return;
    const std::vector<float> factor(static_cast<size_t>(count), static_cast<float>(spec_.factor));
    kernels::LossGrad(context_.pool, context_.isa, {piece, state.data(), z_loss, factor.data(), MutRowsOf(seen)});
    if (options_.soft_cap > 0) {
      kernels::ActivationBackward(context_.pool, context_.isa,
                                  {cap, AsRows(logits_).rows, AsRows(seen).rows, MutRowsOf(logits_)});
    }
  }

  void GradHidden(int64_t begin, int64_t count) {
    Tensor part = grad_hidden_.Slice(0, begin, begin + count);
    kernels::MatMulF32Args args = Scaled();
    args.a = SourceOf(logits_);
    args.b = SourceOf(kernel_).Transposed();
    args.c = ResultOf(part);
    Product(args, "grad_lhs");
  }

  // Leaf by leaf when there are several groups of rows, so that the sum has the bits of one product over all rows.
  void GradKernel(int64_t begin, int64_t count) {
    const int64_t step = count == rows_ ? count : kernels::kLeaf;
    for (int64_t at = 0; at < count; at += step) {
      const int64_t rows = std::min(step, count - at);
      kernels::MatMulF32Args args = Scaled();
      const FloatSource x = SourceOf(hidden_.Slice(0, begin + at, begin + at + rows));
      const FloatSource grad = SourceOf(logits_.Slice(0, at, at + rows));
      args.a = options_.tied ? grad.Transposed() : x.Transposed();
      args.b = options_.tied ? x : grad;
      args.c = ResultOf(grad_kernel_);
      args.epilogue.accumulate = begin + at > 0;
      Product(args, "grad_rhs");
    }
  }

  Context& context_;
  Tensor hidden_, kernel_;  // [rows, E], [E, V]
  HeadOptions options_;
  LossSpec spec_;
  Tensor targets_;
  int64_t vocab_, rows_;
  bool gradients_;
  float scale_;
  std::vector<float> loss_, z_part_;
  Tensor logits_, capped_, grad_hidden_, grad_kernel_;
};

Tensor Scalar(double value) {
  Tensor result = Tensor::Empty({}, DType::kF32);
  result.MutableData<float>()[0] = static_cast<float>(value);
  return result;
}

Tensor TimesScalar(Context& context, const Tensor& x, const Tensor& factor) {
  const float by = factor.Data<float>()[0];
  return by == 1.0f ? x : ScaleTensor(context, x, static_cast<double>(by));
}

// The loss of logits that are on the tape already: when a provider answers the head.
Var LossOfLogits(Context& context, const Var& logits, const Tensor& targets, const LossSpec& spec, LossSums* sums) {
  const int64_t vocab = logits.value.dim(logits.value.rank() - 1), rows = logits.value.size() / vocab;
  const Timed timed(context.profile, context.path(), "loss", "forward");
  const RowsOfTensor in = AsRows(logits.value);
  const auto state = std::make_shared<std::vector<kernels::LossRow>>(static_cast<size_t>(rows));
  std::vector<float> loss(static_cast<size_t>(rows)), z_part(static_cast<size_t>(rows));
  const float z_loss = static_cast<float>(spec.z_loss);
  kernels::AddLossPiece(context.pool, context.isa, {in.rows, 0, vocab, targets.Data<int32_t>()}, state->data());
  kernels::FinishLoss(
      {rows, vocab, state->data(), targets.Data<int32_t>(), z_loss, loss.data(), z_part.data(), nullptr});
  const std::vector<int32_t> starts = StartsFor(context, rows);
  sums->xent = SumOverSequences(loss, starts);
  sums->z_loss = SumOverSequences(z_part, starts);
  Tensor out = Scalar(sums->xent * spec.factor);
  if (context.tape == nullptr) return Var(std::move(out));
  return context.tape->Record(std::move(out), {logits.node},
                              [logits = in.tensor, state, targets, vocab, rows, spec, z_loss, path = context.path()](
                                  Context& back, const Tensor& grad) {
                                const Timed time(back.profile, path, "loss", "backward");
                                const std::vector<float> factor(
                                    static_cast<size_t>(rows), static_cast<float>(spec.factor) * grad.Data<float>()[0]);
                                Tensor grad_logits = Tensor::Empty(logits.shape(), logits.dtype());
                                kernels::LossGrad(back.pool, back.isa,
                                                  {{AsRows(logits).rows, 0, vocab, targets.Data<int32_t>()},
                                                   state->data(),
                                                   z_loss,
                                                   factor.data(),
                                                   MutRowsOf(grad_logits)});
                                return std::vector<Tensor>{grad_logits};
                              });
}

Var LogitsOf(Context& context, const Var& hidden, const Operand& head, const HeadOptions& options) {
  Var logits = DotGeneral(context, Activation(hidden), head, HeadDims(hidden));
  logits = SoftCap(context, Scale(context, logits, options.logit_scale), options.soft_cap);
  return Cast(context, logits, DType::kF32);
}

}  // namespace

Var HeadLogits(Context& context, const Var& hidden, const Parameter& head, const HeadOptions& options) {
  CheckFloat("HeadLogits", hidden.value);
  return LogitsOf(context, hidden, HeadOperand(context, hidden, head, options), options);
}

Var LmHeadLoss(Context& context, const Var& hidden, const Parameter& head, const HeadOptions& options,
               const Tensor& targets, const Tensor& segmentation, const LossSpec& spec, LossSums* sums) {
  CheckFloat("LmHeadLoss", hidden.value);
  if (spec.tiles < 1) ThrowUsage("LmHeadLoss at {}: {} tiles, expected at least 1", context.path(), spec.tiles);
  LossSums local;
  if (sums == nullptr) sums = &local;
  const Operand weight = HeadOperand(context, hidden, head, options);
  const int64_t vocab = weight.shape()[1], width = weight.shape()[0], rows = hidden.value.size() / width;
  const Site site = context.PeekSite(OpKind::kDotGeneral);
  if (hidden.value.is_meta() || targets.is_meta() || weight.quantized() ||
      (context.interceptor != nullptr && context.interceptor->Answers(site))) {
    const Var logits = LogitsOf(context, hidden, weight, options);
    if (logits.value.is_meta()) return RecordOutput(context, Tensor::Meta({}, DType::kF32), {logits.node});
    const Tensor counted = CountedTargets(context, targets, segmentation, rows, vocab);
    for (int32_t target : counted.Values<int32_t>()) sums->weights += target >= 0 ? 1 : 0;
    return LossOfLogits(context, logits, counted, spec, sums);
  }
  context.NextSite(OpKind::kDotGeneral);
  if (context.interceptor != nullptr) {
    const Operand lhs = Activation(hidden);
    const DotDims dims = HeadDims(hidden);
    context.interceptor->Fused(context, DotCall{site, lhs, weight, dims, ""});
  }
  Tensor counted = CountedTargets(context, targets, segmentation, rows, vocab);
  for (int32_t target : counted.Values<int32_t>()) sums->weights += target >= 0 ? 1 : 0;
  const Tensor flat = hidden.value.Contiguous().Reshape({rows, width});
  HeadPass pass(context, flat, weight.tensor(), options, spec, std::move(counted), context.tape != nullptr);
  pass.Run();
  const std::vector<int32_t> starts = StartsFor(context, rows);
  sums->xent = SumOverSequences(pass.loss(), starts);
  sums->z_loss = SumOverSequences(pass.z_part(), starts);
  Tensor out = Scalar(sums->xent * spec.factor);
  if (context.tape == nullptr) return Var(std::move(out));
  // The gradients are here already, for an outer gradient of 1; another one multiplies them.
  return context.tape->Record(
      std::move(out), {hidden.node, weight.node},
      [grad_hidden = pass.grad_hidden().Reshape(hidden.shape()), grad_kernel = pass.grad_kernel()](Context& back,
                                                                                                   const Tensor& grad) {
        return std::vector<Tensor>{TimesScalar(back, grad_hidden, grad), TimesScalar(back, grad_kernel, grad)};
      });
}

}  // namespace octavo::ops
