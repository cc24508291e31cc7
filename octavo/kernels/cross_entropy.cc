#include "octavo/kernels/cross_entropy.h"

#include <cmath>

#include "octavo/base/error.h"
#include "octavo/kernels/element.h"
#include "octavo/kernels/math.h"

namespace octavo::kernels {
namespace {

constexpr float kInf = __builtin_inff();

void CheckPiece(const char* op, const LossPiece& piece) {
  CheckRows(op, "logits", piece.logits);
  CheckPresent(op, "target", piece.target, piece.logits.rows);
  const int64_t first = piece.first_column, last = first + piece.logits.cols;
  if (first < 0 || first % kVocabTile != 0 || last > piece.vocab || (last % kVocabTile != 0 && last != piece.vocab)) {
    ThrowUsage("{}: columns {} … {} of a vocabulary of {}; expected pieces cut at multiples of {}", op, first, last - 1,
               piece.vocab, kVocabTile);
  }
  for (int64_t r = 0; r < piece.logits.rows; ++r) {
    if (piece.target[r] >= piece.vocab) {
      ThrowUsage("{}: row {} has target {}, the vocabulary has {} tokens", op, r, piece.target[r], piece.vocab);
    }
  }
}

float LogitAt(const ConstRows& m, int64_t r, int64_t c) {
  float value = 0;
  WithElement(m.dtype, [&](auto element) {
    using E = decltype(element);
    value = E::Load(RowPointer<E>(m, r)[c]);
  });
  return value;
}

// One row of LossGrad. The target's element is done again alone: the scalar functions have the bits of the fast ones.
void GradRow(const LossGradArgs& args, Isa isa, int64_t r) {
  const LossPiece& piece = args.piece;
  const DType dtype = piece.logits.dtype;
  const int64_t cols = piece.logits.cols;
  const ConstRows in = PartOf(piece.logits, {r, r + 1, 0, cols});
  const MutRows out = PartOf(args.grad_logits, {r, r + 1, 0, cols});
  const int64_t target = piece.target[r] - piece.first_column;
  const bool ignored = piece.target[r] < 0;
  const ExpSum& seen = args.row[r].seen;
  const float grad = ignored ? 0.0f : args.grad_loss[r];
  const float both = grad * Fma(2.0f * args.z_loss, seen.LogSum(), 1.0f);
  const float factor = ignored || seen.sum == 0 ? 0.0f : static_cast<float>(static_cast<double>(both) / seen.sum);
  const bool here = !ignored && target >= 0 && target < cols;
  const float target_logit = here ? LogitAt(in, 0, target) : 0;  // read first: out may be the logits
  if (ignored) {
    WithElement(dtype, [&](auto element) {
      using E = decltype(element);
      for (int64_t c = 0; c < cols; ++c) RowPointer<E>(out, 0)[c] = E::Store(0.0f);
    });
    return;
  }
  const auto scale = isa >= Isa::kAvx2 ? ExpScaleAvx2 : ExpScaleRef;
  scale(in.data, out.data, dtype, cols, seen.Shift(), factor);
  if (!here) return;
  WithElement(dtype, [&](auto element) {
    using E = decltype(element);
    RowPointer<E>(out, 0)[target] = E::Store(Exp(target_logit - seen.Shift()) * factor - grad);
  });
}

}  // namespace

void AddLossPiece(ThreadPool& pool, Isa isa, const LossPiece& piece, LossRow* rows) {
  constexpr const char* kOp = "AddLossPiece";
  CheckPiece(kOp, piece);
  CheckPresent(kOp, "rows", rows, piece.logits.rows);
  for (int64_t r = 0; r < piece.logits.rows; ++r) {
    if (rows[r].columns != piece.first_column) {
      ThrowUsage("{}: row {} has seen {} columns, the piece starts at {}; pieces come ascending", kOp, r,
                 rows[r].columns, piece.first_column);
    }
  }
  const int64_t cols = piece.logits.cols;
  pool.ParallelFor(cols == 0 ? 0 : piece.logits.rows, RowGrain(4 * cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const ConstRows row = PartOf(piece.logits, {r, r + 1, 0, cols});
      if (piece.target[r] >= 0) AddToExpSum(isa, row.data, row.dtype, cols, rows[r].seen);
      const int64_t target = piece.target[r] - piece.first_column;
      if (target >= 0 && target < cols) rows[r].target_logit = LogitAt(row, 0, target);
      rows[r].columns += cols;
    }
  });
}

void FinishLoss(const LossArgs& args) {
  constexpr const char* kOp = "FinishLoss";
  CheckPresent(kOp, "row", args.row, args.rows);
  CheckPresent(kOp, "target", args.target, args.rows);
  CheckPresent(kOp, "loss", args.loss, args.rows);
  for (int64_t r = 0; r < args.rows; ++r) {
    const LossRow& row = args.row[r];
    if (row.columns != args.vocab) {
      ThrowUsage("{}: row {} has seen {} of {} columns", kOp, r, row.columns, args.vocab);
    }
    const bool ignored = args.target[r] < 0;
    const float log_sum = row.seen.LogSum();
    const float z_part = ignored ? 0.0f : args.z_loss == 0 ? 0.0f : args.z_loss * (log_sum * log_sum);
    // In double, so that a loss near 0 is not the difference of two large rounded numbers.
    const double log_of_sum = static_cast<double>(Log(static_cast<float>(row.seen.sum)));
    float loss =
        static_cast<float>((static_cast<double>(row.seen.max) - static_cast<double>(row.target_logit)) + log_of_sum);
    if (row.target_logit == -kInf && !std::isnan(row.seen.sum)) loss = kInf;
    args.loss[r] = ignored ? 0.0f : loss + z_part;
    if (args.z_part != nullptr) args.z_part[r] = z_part;
    if (args.log_sum_exp != nullptr) args.log_sum_exp[r] = ignored ? 0.0f : log_sum;
  }
}

void LossGrad(ThreadPool& pool, Isa isa, const LossGradArgs& args) {
  constexpr const char* kOp = "LossGrad";
  CheckPiece(kOp, args.piece);
  CheckRows(kOp, "grad_logits", args.grad_logits);
  CheckSameShape(kOp, "logits", args.piece.logits, "grad_logits", args.grad_logits);
  CheckSameDType(kOp, "logits", args.piece.logits, "grad_logits", args.grad_logits);
  const int64_t rows = args.piece.logits.rows, cols = args.piece.logits.cols;
  CheckPresent(kOp, "row", args.row, rows);
  CheckPresent(kOp, "grad_loss", args.grad_loss, rows);
  for (int64_t r = 0; r < rows; ++r) {
    if (args.row[r].columns != args.piece.vocab) {
      ThrowUsage("{}: row {} has seen {} of {} columns", kOp, r, args.row[r].columns, args.piece.vocab);
    }
  }
  pool.ParallelFor(cols == 0 ? 0 : rows, RowGrain(4 * cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) GradRow(args, isa, r);
  });
}

}  // namespace octavo::kernels
