// The load-balance loss of ops/moe.h. Small next to the experts' matmuls, so it is plain loops: probabilities by the
// row kernels, sums over a sequence's tokens ascending in double.
#include <vector>

#include "octavo/base/error.h"
#include "octavo/kernels/activation.h"
#include "octavo/kernels/softmax.h"
#include "octavo/ops/moe.h"
#include "octavo/ops/tape.h"

namespace octavo::ops {
namespace {

// p[t, :] and, under sigmoid scoring, the scores and their sums that it was made of.
struct Probabilities {
  Tensor p;      // f32 [B * T, E]
  Tensor score;  // sigmoid only
};

Probabilities MakeProbabilities(Context& context, const Tensor& logits, RouterScore score) {
  const int64_t experts = logits.dim(-1), rows = logits.size() / experts;
  const kernels::ConstRows x{logits.RawData(), logits.dtype(), rows, experts, experts};
  Probabilities result;
  result.p = Tensor::Empty({rows, experts}, DType::kF32);
  const kernels::MutRows out = kernels::RowsOf(result.p.MutableData<float>(), rows, experts);
  if (score != RouterScore::kSigmoid) {
    kernels::SoftmaxForward(context.pool, context.isa, {x, out});
    return result;
  }
  kernels::ActivationForward(context.pool, context.isa, {{kernels::Activation::kSigmoid}, x, out});
  result.score = result.p.Clone();
  float* p = result.p.MutableData<float>();
  for (int64_t t = 0; t < rows; ++t) {
    double sum = 0;
    for (int64_t e = 0; e < experts; ++e) sum += p[t * experts + e];
    for (int64_t e = 0; e < experts; ++e) p[t * experts + e] = static_cast<float>(p[t * experts + e] / (sum + 1e-20));
  }
  return result;
}

// Chosen places per (sequence, expert), divided by the tokens of a sequence.
std::vector<double> Densities(const Tensor& expert, int64_t batch, int64_t length, int64_t experts) {
  std::vector<double> density(static_cast<size_t>(batch * experts));
  const int64_t top_k = expert.dim(1);
  const int32_t* chosen = expert.Data<int32_t>();
  for (int64_t i = 0; i < expert.size(); ++i) density[i / (top_k * length) * experts + chosen[i]] += 1;
  for (double& value : density) value /= static_cast<double>(length);
  return density;
}

// From the gradient by a row's probabilities to that by its logits.
void ThroughProbabilities(const float* p, const float* score, const double* grad_p, int64_t experts, double* grad) {
  double dot = 0, sum = 0;
  for (int64_t e = 0; e < experts; ++e) dot += p[e] * grad_p[e];
  if (score == nullptr) {
    for (int64_t e = 0; e < experts; ++e) grad[e] = p[e] * (grad_p[e] - dot);
    return;
  }
  for (int64_t e = 0; e < experts; ++e) sum += score[e];
  for (int64_t e = 0; e < experts; ++e) {
    grad[e] = (grad_p[e] - dot) / (sum + 1e-20) * score[e] * (1.0 - score[e]);
  }
}

}  // namespace

Var BalanceLoss(Context& context, const Var& logits, const Tensor& expert, RouterScore score, double factor) {
  const Shape& shape = logits.shape();
  if (shape.rank() != 3 || logits.dtype() != DType::kF32) {
    ThrowUsage("BalanceLoss: logits are {}, expected f32 [batch, length, experts]", logits.value.ToString());
  }
  if (logits.value.is_meta()) return Var(Tensor::Meta({}, DType::kF32));
  const int64_t batch = shape[0], length = shape[1], experts = shape[2];
  const Tensor x = logits.value.Contiguous();
  const Probabilities probabilities = MakeProbabilities(context, x, score);
  const std::vector<double> density = Densities(expert, batch, length, experts);
  const float* p = probabilities.p.Data<float>();
  // d loss / d p of a token in sequence b is weight * density[b].
  const double weight = factor / static_cast<double>(batch * experts) / static_cast<double>(length);
  double loss = 0;
  for (int64_t b = 0; b < batch; ++b) {
    std::vector<double> sums(static_cast<size_t>(experts));
    for (int64_t t = b * length; t < (b + 1) * length; ++t) {
      for (int64_t e = 0; e < experts; ++e) sums[e] += p[t * experts + e];
    }
    for (int64_t e = 0; e < experts; ++e) loss += density[b * experts + e] * sums[e] * weight;
  }
  Tensor out = Tensor::FromValues<float>({}, DType::kF32, std::vector<float>{static_cast<float>(loss)});
  if (context.tape == nullptr) return Var(std::move(out));
  return context.tape->Record(
      std::move(out), {logits.node}, [probabilities, density, weight, shape](Context&, const Tensor& grad) {
        const int64_t each = shape[1], count = shape[2];
        const double seed = grad.Data<float>()[0] * weight;
        Tensor grad_logits = Tensor::Empty(shape, DType::kF32);
        std::vector<double> grad_p(static_cast<size_t>(count)), row(static_cast<size_t>(count));
        for (int64_t t = 0; t < shape[0] * each; ++t) {
          for (int64_t e = 0; e < count; ++e) grad_p[e] = seed * density[t / each * count + e];
          const float* scores = probabilities.score.defined() ? probabilities.score.Data<float>() + t * count : nullptr;
          ThroughProbabilities(probabilities.p.Data<float>() + t * count, scores, grad_p.data(), count, row.data());
          for (int64_t e = 0; e < count; ++e) {
            grad_logits.MutableData<float>()[t * count + e] = static_cast<float>(row[e]);
          }
        }
        return std::vector<Tensor>{grad_logits};
      });
}

}  // namespace octavo::ops
