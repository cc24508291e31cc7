// The numbers of one row of logits, or of two rows over the same vocabulary: in doubles, from the f32 logits, one
// element after the other. Used by text_loss.cc and compare.cc. Memory: one row.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace octavo::eval {

// -log p(target). NaN when a logit is NaN or +inf, or all are -inf.
double TokenLoss(std::span<const float> logits, int32_t target);

struct RowDivergence {
  double kl = 0;          // KL(a || b), at least 0
  bool same_top = false;  // the most likely token, the lower one of equals
  double loss_a = 0, loss_b = 0;
  double delta_p = 0;  // p_b(target) - p_a(target)
  bool equal = false;  // bit for bit
};

RowDivergence Diverge(std::span<const float> a, std::span<const float> b, int32_t target);

}  // namespace octavo::eval
