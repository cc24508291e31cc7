// The language-model loss: per row, logsumexp(logits) - logits[target], plus z_loss * logsumexp^2. Forward and
// backward, over whole rows or over the vocabulary in pieces (whole tiles of 1024 columns, softmax.h), with the same
// bits. Used by ops/loss (LmHeadLoss makes and drops the logits piece by piece) and eval/. Sums over rows are the
// caller's, in double (reductions.h, SumPerSequence).
//
// A target below 0 marks a row to ignore: loss and gradient are 0. A target whose probability is 0 has loss +inf.
#pragma once

#include <cstdint>

#include "octavo/base/thread_pool.h"
#include "octavo/kernels/isa.h"
#include "octavo/kernels/rows.h"
#include "octavo/kernels/softmax.h"

namespace octavo::kernels {

// One row's progress through the vocabulary. Start with a default one.
struct LossRow {
  ExpSum seen;
  float target_logit = -__builtin_inff();
  int64_t columns = 0;  // seen so far
};

// A piece of the vocabulary: columns first_column … first_column + logits.cols - 1 of `vocab`. Pieces come ascending;
// each starts at a multiple of kVocabTile and ends at one or at the end of the vocabulary.
struct LossPiece {
  ConstRows logits;
  int64_t first_column = 0, vocab = 0;
  const int32_t* target = nullptr;  // [rows], below vocab
};
void AddLossPiece(ThreadPool& pool, Isa isa, const LossPiece& piece, LossRow* rows);

// After the last piece.
struct LossArgs {
  int64_t rows = 0, vocab = 0;
  const LossRow* row = nullptr;
  const int32_t* target = nullptr;
  float z_loss = 0;
  float* loss = nullptr;         // [rows], with the z-loss
  float* z_part = nullptr;       // [rows], may be null: the z-loss alone
  float* log_sum_exp = nullptr;  // [rows], may be null
};
void FinishLoss(const LossArgs& args);

// grad_logits[r, c] = grad_loss[r] * (softmax(r, c) * (1 + 2 z_loss logsumexp(r)) - (c == target)), for one piece.
struct LossGradArgs {
  LossPiece piece;
  const LossRow* row = nullptr;  // finished
  float z_loss = 0;
  const float* grad_loss = nullptr;  // [rows]
  MutRows grad_logits;               // dtype of the logits; may be the logits themselves
};
void LossGrad(ThreadPool& pool, Isa isa, const LossGradArgs& args);

}  // namespace octavo::kernels
