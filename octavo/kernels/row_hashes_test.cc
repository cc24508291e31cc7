// The bits of the row kernels, written down. They hold for every compiler, instruction set and thread count; a change
// here is a change of every checkpoint and golden file made so far, and needs a decision record.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "octavo/kernels/activation.h"
#include "octavo/kernels/cross_entropy.h"
#include "octavo/kernels/elementwise.h"
#include "octavo/kernels/embedding.h"
#include "octavo/kernels/norm.h"
#include "octavo/kernels/optimizer.h"
#include "octavo/kernels/reductions.h"
#include "octavo/kernels/rope.h"
#include "octavo/kernels/rope_table.h"
#include "octavo/kernels/router.h"
#include "octavo/kernels/sample_rows.h"

namespace octavo::kernels {
namespace {

// Runs on both instruction sets and several thread counts; all must give the hash.
template <typename Compute>
void ExpectHash(uint64_t want, Compute compute) {
  for (Isa isa : AvailableIsas()) {
    for (int threads : {1, 3}) {
      ThreadPool pool(threads);
      EXPECT_EQ(compute(pool, isa), want) << NameOf(isa) << " " << threads << " threads";
    }
  }
}

uint64_t NormHash(ThreadPool& pool, Isa isa, NormKind kind, DType dtype) {
  const std::vector<float> weight = SampleFloats(333, 1), bias = SampleFloats(333, 2);
  const SampleRows x = SampleRows::Random(dtype, 600, 333, 3), grad_y = SampleRows::Random(dtype, 600, 333, 4);
  SampleRows y(dtype, 600, 333), grad_x(dtype, 600, 333);
  std::vector<float> inv(600), mean(600), grad_weight(333), grad_bias(333);
  const NormSpec spec{.kind = kind, .weight = weight.data(), .bias = bias.data()};
  const int32_t begin[] = {0, 300, 600};
  NormForward(pool, isa, {spec, x.view(), y.mut(), inv.data(), mean.data()});
  NormBackward(pool, isa,
               {spec,
                x.view(),
                grad_y.view(),
                inv.data(),
                mean.data(),
                grad_x.mut(),
                grad_weight.data(),
                grad_bias.data(),
                false,
                {begin, 2}});
  return HashOf(y) ^ (HashOf(grad_x) * 3) ^ (HashOf(grad_weight) * 5) ^ (HashOf(grad_bias) * 7);
}

TEST(RowHashes, Norm) {
  const auto hash = [](NormKind kind, DType dtype) {
    return [=](ThreadPool& pool, Isa isa) { return NormHash(pool, isa, kind, dtype); };
  };
  ExpectHash(0x628578ce2dff2622ull, hash(NormKind::kRms, DType::kF32));
  ExpectHash(0x2add44073ed01432ull, hash(NormKind::kRms, DType::kBF16));
  ExpectHash(0xdc6d61b6ed1b28abull, hash(NormKind::kLayer, DType::kF32));
  ExpectHash(0xc19957a65f91b517ull, hash(NormKind::kLayer, DType::kBF16));
}

TEST(RowHashes, Rope) {
  ExpectHash(0x5b4c424ffbc63ffaull, [](ThreadPool& pool, Isa isa) {
    std::vector<float> cos(100 * 32), sin(100 * 32);
    FillRopeTable(pool, isa,
                  MakeRopeFrequencies({.rotary_dim = 64,
                                       .max_timescale = 5e5,
                                       .scaling = RopeScaling::kLlama3,
                                       .factor = 8,
                                       .original_positions = 8192}),
                  8000, 100, cos.data(), sin.data());
    SampleRows x = SampleRows::Random(DType::kF32, 100, 128, 1, 1, 0);
    std::vector<int32_t> position(100);
    std::iota(position.begin(), position.end(), 8000);
    RopeArgs args{RopeDirection::kForward, RopeLayout::kHalves, DType::kF32, 100, 2, 64, 64};
    args.in = args.out = x.mut().data;
    args.in_token_stride = args.out_token_stride = 128;
    args.in_head_stride = args.out_head_stride = 64;
    args.position = position.data();
    args.cos = cos.data();
    args.sin = sin.data();
    args.table_first = 8000;
    args.table_rows = 100;
    Rope(pool, isa, args);
    return HashOf(cos) ^ (HashOf(sin) * 3) ^ (HashOf(x) * 5);
  });
}

TEST(RowHashes, Gates) {
  ExpectHash(0xc8e2af80767df6d9ull, [](ThreadPool& pool, Isa isa) {
    uint64_t hash = 0;
    for (Activation kind : {Activation::kSilu, Activation::kGeluTanh, Activation::kGeluErf, Activation::kSoftCap}) {
      const SampleRows gate = SampleRows::Random(DType::kF32, 40, 77, 1, 9),
                       up = SampleRows::Random(DType::kF32, 40, 77, 2);
      SampleRows y(DType::kF32, 40, 77), grad_gate = y, grad_up = y;
      const GateSpec spec{{kind, 1.0f}};
      GateForward(pool, isa, {spec, gate.view(), up.view(), y.mut()});
      GateBackward(pool, isa, {spec, gate.view(), up.view(), y.view(), grad_gate.mut(), grad_up.mut()});
      hash = hash * 31 + (HashOf(y) ^ (HashOf(grad_gate) * 3) ^ (HashOf(grad_up) * 5));
    }
    return hash;
  });
}

TEST(RowHashes, Loss) {
  ExpectHash(0x374bbfa1cedc4aebull, [](ThreadPool& pool, Isa isa) {
    const SampleRows logits = SampleRows::Random(DType::kF32, 9, 3333, 1, 12);
    std::vector<int32_t> target(9);
    for (int r = 0; r < 9; ++r) target[r] = 300 * r + 1;
    const std::vector<float> grad_loss = SampleFloats(9, 2);
    std::vector<float> loss(9);
    std::vector<LossRow> rows(9);
    SampleRows grad(DType::kF32, 9, 3333);
    const LossPiece piece{logits.view(), 0, 3333, target.data()};
    AddLossPiece(pool, isa, piece, rows.data());
    FinishLoss({9, 3333, rows.data(), target.data(), 1e-4f, loss.data()});
    LossGrad(pool, isa, {piece, rows.data(), 1e-4f, grad_loss.data(), grad.mut()});
    return HashOf(loss) ^ (HashOf(grad) * 3);
  });
}

TEST(RowHashes, EmbeddingAndBias) {
  ExpectHash(0x7c28e6aba22abc6full, [](ThreadPool& pool, Isa isa) {
    const SampleRows grad = SampleRows::Random(DType::kF32, 900, 77, 1);
    std::vector<int32_t> id(900);
    for (int t = 0; t < 900; ++t) id[t] = static_cast<int32_t>(SampleBits(2, t) % 5);
    std::vector<float> table(5 * 77), bias(77);
    ScatterAddRows(pool, isa, {grad.view(), id.data(), {}, RowsOf(table.data(), 5, 77)});
    BiasGrad(pool, isa, {grad.view(), bias.data(), false, {}});
    return HashOf(table) ^ (HashOf(bias) * 3);
  });
}

TEST(RowHashes, OptimizerAndReductions) {
  ExpectHash(0x8d7653c7104fa7dull, [](ThreadPool& pool, Isa isa) {
    std::vector<float> weight = SampleFloats(9001, 1), moment1(9001), moment2(9001);
    for (int step = 0; step < 5; ++step) {
      const std::vector<float> grad = SampleFloats(9001, 10 + step);
      const double norm = SumChunks(pool, isa, SumOf::kSquares, grad.data(), DType::kF32, 9001);
      AdamUpdate(pool, isa,
                 {.kind = step < 3 ? AdamKind::kAdamW : AdamKind::kAdamPax,
                  .rate = 1e-2,
                  .grad_scale = 1 / norm,
                  .step = step,
                  .count = 9001,
                  .grad = grad.data(),
                  .weight = weight.data(),
                  .moment1 = moment1.data(),
                  .moment2 = moment2.data()});
    }
    return HashOf(weight) ^ (HashOf(moment1) * 3) ^ (HashOf(moment2) * 5);
  });
}

TEST(RowHashes, Router) {
  ExpectHash(0x6b93cfb4c18b53c0ull, [](ThreadPool& pool, Isa isa) {
    const std::vector<float> logits = SampleFloats(300 * 32, 1, 3);
    std::vector<int32_t> expert(300 * 4);
    std::vector<float> weight(300 * 4), score(300 * 32);
    Route(pool, isa,
          {{.score = RouterScore::kSigmoid,
            .experts = 32,
            .top_k = 4,
            .groups = 4,
            .top_groups = 2,
            .normalize = true,
            .scale = 2.5f},
           RowsOf(logits.data(), 300, 32),
           expert.data(),
           weight.data(),
           score.data()});
    return HashOf(weight) ^ (HashOf(score) * 3) ^ (HashOf(expert.data(), 300 * 4 * 4) * 5);
  });
}

}  // namespace
}  // namespace octavo::kernels
