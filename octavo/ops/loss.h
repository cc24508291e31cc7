// The output head: logits, and the language-model loss over them. LmHeadLoss makes the logits a few rows at a time, and
// in the same go the gradients of hidden states and head, so that the full logits never exist and nothing is computed
// twice. Bits do not depend on the number of tiles.
#pragma once

#include "octavo/ops/context.h"
#include "octavo/ops/parameter.h"
#include "octavo/ops/var.h"

namespace octavo::ops {

struct HeadOptions {
  // The head is the embedding table [V, E] instead of a kernel [E, V]; it is rounded to bf16, as the reference does
  // whatever the type of the computation, unless told to leave it as it is (logits_dot_in_fp32).
  bool tied = false, unrounded = false;
  double logit_scale = 1;  // 1 / sqrt(E) for normalize_embedding_logits
  double soft_cap = 0;     // final_logits_soft_cap
};

// hidden [..., E] -> [..., V] in f32. The dot_general site of the current module.
Var HeadLogits(Context& context, const Var& hidden, const Parameter& head, const HeadOptions& options);

struct LossSums {
  double xent = 0;     // with the z-loss, over the tokens that count
  double z_loss = 0;   // the z-loss alone
  double weights = 0;  // tokens that count
};

struct LossSpec {
  double z_loss = 0;  // multiplier of logsumexp^2
  double factor = 1;  // of the sum over tokens: 1 / (total weights + 1e-8)
  int tiles = 1;      // num_vocab_tiling: rows are taken in at least this many groups, each of whole leaves of 256
};

// The scalar factor * sum over tokens of (logsumexp(l) - l[target] + z_loss * logsumexp(l)^2). targets and
// segmentation are i32 with one element per row of hidden; a token of segment 0 does not count. Sums are f64 per
// sequence, sequences ascending; the value is rounded to f32.
Var LmHeadLoss(Context& context, const Var& hidden, const Parameter& head, const HeadOptions& options,
               const Tensor& targets, const Tensor& segmentation, const LossSpec& spec, LossSums* sums);

}  // namespace octavo::ops
