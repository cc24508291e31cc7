// Mixtures of experts around the grouped matmul: which experts a token goes to, its rows' way to them and back, and the
// loss that keeps experts evenly used. Used by nn/moe. Every token is decided alone, ties go to the lower index,
// nothing is dropped unless experts have a capacity; rows are sorted by (expert, token), results are added in router
// order. Owns no parameters.
#pragma once

#include <cstdint>
#include <string_view>

#include "octavo/ops/context.h"
#include "octavo/ops/var.h"

namespace octavo::ops {

enum class RouterScore : uint8_t {
  kSoftmax,        // probabilities over all experts (deepseek v2)
  kSigmoid,        // each expert by itself (deepseek v3)
  kSoftmaxOfTopK,  // logits choose, and the softmax is over the chosen (mixtral)
};

struct RouterOptions {
  RouterScore score = RouterScore::kSoftmaxOfTopK;
  int64_t top_k = 1;
  // Only experts of the best groups can be chosen. A group is as good as its best expert under softmax scoring, as the
  // sum of its best two under sigmoid scoring (the papers of deepseek v2 and v3).
  int64_t groups = 1, top_groups = 1;
  bool normalize = false;  // chosen weights add up to 1
  double scale = 1;
};

// Where the rows of [R] tokens go. A place is token * top_k + j, j in router order, best first.
struct Routing {
  Var weight;          // f32 [R, top_k]
  Tensor expert;       // i32 [R, top_k]
  Tensor sorted;       // i32 [R * top_k]: row i of the sorted rows is place sorted[i]
  Tensor row_of;       // its inverse
  Tensor group_sizes;  // i32 [E]
  int64_t top_k() const { return expert.dim(1); }
};

// logits [R, E]; `bias` f32 [E] (may be undefined) takes part in the choice, not in the weight, and gets no gradient.
Routing RouteTokens(Context& context, const Var& logits, const Tensor& bias, const RouterOptions& options);

// x [R, W] -> [R * top_k, W], sorted by (expert, token).
Var DispatchRows(Context& context, const Var& x, const Routing& routing);

// y [R * top_k, W], sorted -> [R, top_k, W] in router order.
Var CollectRows(Context& context, const Var& y, const Routing& routing);

// y [R, K, W], weight f32 [R, K] -> [R, W], in y's type. The einsum "BKE,BK->BE" of the current module.
Var CombineExperts(Context& context, const Var& y, const Var& weight);

// weight [R, top_k] at its expert's place in [R, E], 0 elsewhere: what dense experts are weighed by.
Var SpreadWeights(Context& context, const Routing& routing, int64_t experts);

// Experts with room for `capacity` tokens of each row of [batch, length]: its places fill in the order of tokens, of
// one token in router order, and who comes later is dropped there (adds nothing).
struct Seats {
  Tensor taken;  // f32 [B, T, E, C]: 1 where the token of row b has seat c of expert e
  Var weight;    // the same with the router's weight in place of 1
};
Seats SeatTokens(Context& context, const Routing& routing, int64_t batch, int64_t experts, int64_t capacity);

// A scalar: factor * mean over sequences b and experts e of
//   (share of b's tokens that chose e) * (mean probability of e in b).
// logits f32 [B, T, E], expert i32 [B * T, top_k]. Probabilities: the softmax of the logits; under sigmoid scoring the
// scores divided by their sum. The choice gets no gradient.
Var BalanceLoss(Context& context, const Var& logits, const Tensor& expert, RouterScore score, double factor);

}  // namespace octavo::ops
