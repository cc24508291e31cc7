// Which experts a token goes to, with what weight, and in what order the rows are laid out for the grouped matmul. Used
// by ops/moe. Every token is decided alone; ties go to the lower index; nothing is dropped.
#pragma once

#include <cstdint>

#include "octavo/base/thread_pool.h"
#include "octavo/kernels/isa.h"
#include "octavo/kernels/rows.h"

namespace octavo::kernels {

enum class RouterScore : uint8_t {
  kSoftmax,        // probabilities over all experts (qwen, deepseek v2)
  kSigmoid,        // each expert by itself (deepseek v3)
  kSoftmaxOfTopK,  // logits choose, and the softmax is over the chosen (mixtral, gpt-oss)
};

enum class GroupScore : uint8_t { kMax, kTopTwoSum };

// Selection looks at score + bias, weights at the score alone. With groups, only experts of the best top_groups groups
// can be chosen (deepseek). weight = score / (sum of chosen scores + 1e-20) when `normalize`, then times `scale`.
struct RouterSpec {
  RouterScore score = RouterScore::kSoftmax;
  int64_t experts = 0, top_k = 0;
  const float* bias = nullptr;  // [experts]
  int64_t groups = 1, top_groups = 1;
  GroupScore group_score = GroupScore::kTopTwoSum;
  bool normalize = false;
  float scale = 1;
};

// A chosen expert's place: element token * top_k + j, best first. That is the router order.
struct RouteArgs {
  RouterSpec spec;
  ConstRows logits;           // [tokens, experts], f32
  int32_t* expert = nullptr;  // [tokens, top_k]
  float* weight = nullptr;    // [tokens, top_k]
  float* score = nullptr;     // [tokens, experts]; the logits again for kSoftmaxOfTopK. The backward pass needs it
};
void Route(ThreadPool& pool, Isa isa, const RouteArgs& args);

struct RouteGradArgs {
  RouterSpec spec;
  int64_t tokens = 0;
  const int32_t* expert = nullptr;  // from the forward pass
  const float* score = nullptr;
  const float* grad_weight = nullptr;  // [tokens, top_k]
  float* grad_logits = nullptr;        // [tokens, experts]
};
void RouteBackward(ThreadPool& pool, const RouteGradArgs& args);

// Places (token * top_k + j) sorted by expert, and by place inside an expert.
struct ExpertOrderArgs {
  int64_t places = 0, experts = 0;
  const int32_t* expert = nullptr;  // [places]
  int32_t* sorted = nullptr;        // [places]: row i of the sorted rows is place sorted[i]
  int32_t* row_of = nullptr;        // [places]: its inverse
  int64_t* group_rows = nullptr;    // [experts]
};
void OrderByExpert(const ExpertOrderArgs& args);

}  // namespace octavo::kernels
