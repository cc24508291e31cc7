#include "octavo/kernels/router.h"

#include <algorithm>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/kernels/activation.h"
#include "octavo/kernels/math.h"
#include "octavo/kernels/softmax.h"

namespace octavo::kernels {
namespace {

constexpr float kInf = __builtin_inff();
constexpr float kTiny = 1e-20f;  // keeps 0 / 0 away when every chosen score is 0

void CheckSpec(const char* op, const RouterSpec& s) {
  if (s.experts < 1 || s.top_k < 1 || s.top_k > s.experts) {
    ThrowUsage("{}: {} of {} experts", op, s.top_k, s.experts);
  }
  if (s.groups < 1 || s.experts % s.groups != 0 || s.top_groups < 1 || s.top_groups > s.groups) {
    ThrowUsage("{}: the best {} of {} groups of {} experts; expected groups that divide the experts", op, s.top_groups,
               s.groups, s.experts);
  }
  if (s.top_k > s.experts / s.groups * s.top_groups) {
    ThrowUsage("{}: {} experts are to be chosen, but {} groups hold only {}", op, s.top_k, s.top_groups,
               s.experts / s.groups * s.top_groups);
  }
}

// NaN is worse than everything, so that a token always has its experts.
inline float Ranked(float v) { return v == v ? v : -kInf; }

// The `count` best of value[0 … size) that are not `taken`, descending, ties to the lower index. Marks them taken.
void TopIndices(const float* value, int64_t size, int64_t count, std::vector<char>& taken, int32_t* best) {
  for (int64_t j = 0; j < count; ++j) {
    int64_t winner = -1;
    for (int64_t e = 0; e < size; ++e) {
      if (taken[e] == 0 && (winner < 0 || value[e] > value[winner])) winner = e;
    }
    taken[winner] = 1;
    best[j] = static_cast<int32_t>(winner);
  }
}

struct Scratch {
  std::vector<float> choice, group_value;
  std::vector<int32_t> group_best;
  std::vector<char> taken, group_taken;
};

// Marks the experts of all but the best groups as taken.
void KeepBestGroups(const RouterSpec& s, Scratch& scratch) {
  const int64_t size = s.experts / s.groups;
  scratch.group_value.resize(s.groups);
  for (int64_t g = 0; g < s.groups; ++g) {
    float first = -kInf, second = -kInf;
    for (int64_t e = g * size; e < (g + 1) * size; ++e) {
      const float v = scratch.choice[e];
      if (v > first) {
        second = first;
        first = v;
      } else if (v > second) {
        second = v;
      }
    }
    scratch.group_value[g] = s.group_score == GroupScore::kMax || size == 1 ? first : Ranked(first + second);
  }
  scratch.group_best.resize(s.top_groups);
  scratch.group_taken.assign(s.groups, 0);
  TopIndices(scratch.group_value.data(), s.groups, s.top_groups, scratch.group_taken, scratch.group_best.data());
  for (int64_t g = 0; g < s.groups; ++g) {
    if (scratch.group_taken[g] == 0) std::fill_n(scratch.taken.begin() + g * size, size, 1);
  }
}

void ChooseExperts(const RouterSpec& s, const float* score, int32_t* expert, Scratch& scratch) {
  scratch.choice.resize(s.experts);
  for (int64_t e = 0; e < s.experts; ++e) {
    scratch.choice[e] = Ranked(s.bias != nullptr ? score[e] + s.bias[e] : score[e]);
  }
  scratch.taken.assign(s.experts, 0);
  if (s.top_groups < s.groups) KeepBestGroups(s, scratch);
  TopIndices(scratch.choice.data(), s.experts, s.top_k, scratch.taken, expert);
}

// The softmax of the chosen logits, in router order; zeros when all are -inf.
void SoftmaxOfChosen(const RouterSpec& s, const float* logit, const int32_t* expert, float* out) {
  float max = -kInf, sum = 0;
  for (int64_t j = 0; j < s.top_k; ++j) max = Max(logit[expert[j]], max);
  const float shift = max == -kInf ? 0.0f : max;
  for (int64_t j = 0; j < s.top_k; ++j) sum += out[j] = Exp(logit[expert[j]] - shift);
  for (int64_t j = 0; j < s.top_k; ++j) out[j] = sum == 0 ? 0.0f : out[j] / sum;
}

void Weigh(const RouterSpec& s, const float* score, const int32_t* expert, float* weight) {
  if (s.score == RouterScore::kSoftmaxOfTopK) {
    SoftmaxOfChosen(s, score, expert, weight);
    for (int64_t j = 0; j < s.top_k; ++j) weight[j] = weight[j] * s.scale;
    return;
  }
  float sum = 0;
  for (int64_t j = 0; j < s.top_k; ++j) sum += weight[j] = score[expert[j]];
  const float divisor = sum + kTiny;
  for (int64_t j = 0; j < s.top_k; ++j) weight[j] = (s.normalize ? weight[j] / divisor : weight[j]) * s.scale;
}

// One token of RouteBackward.
void RouteGradToken(const RouterSpec& s, const int32_t* expert, const float* score, const float* grad_weight,
                    Scratch& scratch, float* grad_logits) {
  std::fill_n(grad_logits, s.experts, 0.0f);
  std::vector<float>& grad_score = scratch.choice;
  grad_score.resize(s.top_k);
  for (int64_t j = 0; j < s.top_k; ++j) grad_score[j] = grad_weight[j] * s.scale;
  if (s.score == RouterScore::kSoftmaxOfTopK) {
    std::vector<float>& p = scratch.group_value;
    p.resize(s.top_k);
    SoftmaxOfChosen(s, score, expert, p.data());
    float dot = 0;
    for (int64_t j = 0; j < s.top_k; ++j) dot = Fma(p[j], grad_score[j], dot);
    for (int64_t j = 0; j < s.top_k; ++j) grad_logits[expert[j]] = p[j] * (grad_score[j] - dot);
    return;
  }
  if (s.normalize) {
    float sum = 0, dot = 0;
    for (int64_t j = 0; j < s.top_k; ++j) sum += score[expert[j]];
    const float divisor = sum + kTiny;
    for (int64_t j = 0; j < s.top_k; ++j) dot = Fma(score[expert[j]] / divisor, grad_score[j], dot);
    for (int64_t j = 0; j < s.top_k; ++j) grad_score[j] = (grad_score[j] - dot) / divisor;
  }
  if (s.score == RouterScore::kSigmoid) {
    for (int64_t j = 0; j < s.top_k; ++j) {
      const float p = score[expert[j]];
      grad_logits[expert[j]] = grad_score[j] * (p * (1.0f - p));
    }
    return;
  }
  float dot = 0;
  for (int64_t j = 0; j < s.top_k; ++j) dot = Fma(score[expert[j]], grad_score[j], dot);
  for (int64_t j = 0; j < s.top_k; ++j) grad_logits[expert[j]] = grad_score[j];
  for (int64_t e = 0; e < s.experts; ++e) grad_logits[e] = score[e] * (grad_logits[e] - dot);
}

}  // namespace

void Route(ThreadPool& pool, Isa isa, const RouteArgs& args) {
  constexpr const char* kOp = "Route";
  const RouterSpec& s = args.spec;
  const int64_t tokens = args.logits.rows;
  CheckSpec(kOp, s);
  CheckRows(kOp, "logits", args.logits);
  if (args.logits.cols != s.experts || args.logits.dtype != DType::kF32) {
    ThrowUsage("{}: logits are [{}, {}] {}, expected {} f32 columns", kOp, tokens, args.logits.cols,
               NameOf(args.logits.dtype), s.experts);
  }
  CheckPresent(kOp, "expert", args.expert, tokens);
  CheckPresent(kOp, "weight", args.weight, tokens);
  CheckPresent(kOp, "score", args.score, tokens);
  const MutRows scores = RowsOf(args.score, tokens, s.experts);
  if (s.score == RouterScore::kSoftmax) SoftmaxForward(pool, isa, {args.logits, scores});
  if (s.score == RouterScore::kSigmoid) ActivationForward(pool, isa, {{Activation::kSigmoid}, args.logits, scores});
  if (s.score == RouterScore::kSoftmaxOfTopK) {
    ActivationForward(pool, isa, {{Activation::kLinear}, args.logits, scores});
  }
  pool.ParallelFor(tokens, 64, [&](int64_t begin, int64_t end) {
    Scratch scratch;
    for (int64_t t = begin; t < end; ++t) {
      const float* score = args.score + t * s.experts;
      ChooseExperts(s, score, args.expert + t * s.top_k, scratch);
      Weigh(s, score, args.expert + t * s.top_k, args.weight + t * s.top_k);
    }
  });
}

void RouteBackward(ThreadPool& pool, const RouteGradArgs& args) {
  constexpr const char* kOp = "RouteBackward";
  const RouterSpec& s = args.spec;
  CheckSpec(kOp, s);
  CheckPresent(kOp, "expert", args.expert, args.tokens);
  CheckPresent(kOp, "score", args.score, args.tokens);
  CheckPresent(kOp, "grad_weight", args.grad_weight, args.tokens);
  CheckPresent(kOp, "grad_logits", args.grad_logits, args.tokens);
  pool.ParallelFor(args.tokens, 64, [&](int64_t begin, int64_t end) {
    Scratch scratch;
    for (int64_t t = begin; t < end; ++t) {
      RouteGradToken(s, args.expert + t * s.top_k, args.score + t * s.experts, args.grad_weight + t * s.top_k, scratch,
                     args.grad_logits + t * s.experts);
    }
  });
}

void OrderByExpert(const ExpertOrderArgs& args) {
  constexpr const char* kOp = "OrderByExpert";
  if (args.places > INT32_MAX) ThrowUsage("{}: {} places are too many for one call", kOp, args.places);
  CheckPresent(kOp, "expert", args.expert, args.places);
  CheckPresent(kOp, "sorted", args.sorted, args.places);
  CheckPresent(kOp, "row_of", args.row_of, args.places);
  CheckPresent(kOp, "group_rows", args.group_rows, args.experts);
  std::fill_n(args.group_rows, args.experts, 0);
  for (int64_t p = 0; p < args.places; ++p) {
    if (args.expert[p] < 0 || args.expert[p] >= args.experts) {
      ThrowUsage("{}: place {} goes to expert {} of {}", kOp, p, args.expert[p], args.experts);
    }
    ++args.group_rows[args.expert[p]];
  }
  std::vector<int64_t> next(args.experts);
  for (int64_t e = 1; e < args.experts; ++e) next[e] = next[e - 1] + args.group_rows[e - 1];
  for (int64_t p = 0; p < args.places; ++p) {
    const int64_t row = next[args.expert[p]]++;
    args.sorted[row] = static_cast<int32_t>(p);
    args.row_of[p] = static_cast<int32_t>(row);
  }
}

}  // namespace octavo::kernels
