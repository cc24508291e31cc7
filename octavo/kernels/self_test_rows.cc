// Self tests of the row kernels: norms, rotation, activations, elementwise, loss, embedding, reductions, optimizer,
// experts, and the functions they are made of.
#include <numeric>

#include "octavo/kernels/activation.h"
#include "octavo/kernels/cross_entropy.h"
#include "octavo/kernels/elementwise.h"
#include "octavo/kernels/embedding.h"
#include "octavo/kernels/experts.h"
#include "octavo/kernels/math_array.h"
#include "octavo/kernels/norm.h"
#include "octavo/kernels/optimizer.h"
#include "octavo/kernels/reductions.h"
#include "octavo/kernels/rope.h"
#include "octavo/kernels/rope_table.h"
#include "octavo/kernels/router.h"
#include "octavo/kernels/self_test_cases.h"

namespace octavo::kernels {
namespace {

constexpr DType kDTypes[] = {DType::kF32, DType::kBF16};

std::string Named(const char* what, DType dtype, int64_t cols) {
  return std::string(what) + " " + std::string(NameOf(dtype)) + " of width " + std::to_string(cols);
}

// Calls run(isa, slot) for the reference (slot 0) and for `isa` (slot 1).
template <typename Run>
void Both(Isa isa, Run run) {
  run(Isa::kReference, 0);
  run(isa, 1);
}

}  // namespace

void SelfTestMath(ThreadPool&, Isa isa, SelfTestLog& log) {
  const std::vector<float> x = SampleFloats(1013, 1, 100);
  for (MathFunction function : kMathFunctions) {
    std::vector<float> y[2] = {x, x};
    Both(isa, [&](Isa which, int slot) { ApplyMath(function, which, x.data(), y[slot].data(), 1013); });
    log.Compare(std::string(NameOf(function)), y[0], y[1]);
  }
}

void SelfTestNorm(ThreadPool& pool, Isa isa, SelfTestLog& log) {
  for (DType dtype : kDTypes) {
    for (NormKind kind : {NormKind::kRms, NormKind::kLayer}) {
      for (int64_t cols : {1, 37, 263}) {
        const std::vector<float> weight = SampleFloats(cols, 1), bias = SampleFloats(cols, 2);
        const SampleRows x = SampleRows::Random(dtype, 301, cols, 3), grad_y = SampleRows::Random(dtype, 301, cols, 4);
        SampleRows y[2] = {{dtype, 301, cols}, {dtype, 301, cols}}, grad_x[2] = {y[0], y[1]};
        std::vector<float> grads[2] = {std::vector<float>(2 * cols), std::vector<float>(2 * cols)};
        const NormSpec spec{.kind = kind, .weight = weight.data(), .bias = bias.data()};
        Both(isa, [&](Isa which, int s) {
          std::vector<float> inv(301), mean(301);
          NormForward(pool, which, {spec, x.view(), y[s].mut(), inv.data(), mean.data()});
          NormBackward(pool, which,
                       {spec,
                        x.view(),
                        grad_y.view(),
                        inv.data(),
                        mean.data(),
                        grad_x[s].mut(),
                        grads[s].data(),
                        grads[s].data() + cols,
                        false,
                        {}});
        });
        const std::string name = kind == NormKind::kRms ? "rms norm" : "layer norm";
        log.Compare(Named(name.c_str(), dtype, cols), y[0], y[1]);
        log.Compare(Named((name + " gradient").c_str(), dtype, cols), grad_x[0], grad_x[1]);
        log.Compare(Named((name + " weight gradient").c_str(), dtype, cols), grads[0], grads[1]);
      }
    }
  }
}

void SelfTestRope(ThreadPool& pool, Isa isa, SelfTestLog& log) {
  const RopeFrequencies frequencies = MakeRopeFrequencies({.rotary_dim = 22, .max_timescale = 5e5});
  std::vector<float> cos[2] = {std::vector<float>(77 * 11), std::vector<float>(77 * 11)}, sin[2] = {cos[0], cos[1]};
  Both(isa,
       [&](Isa which, int s) { FillRopeTable(pool, which, frequencies, 100000, 77, cos[s].data(), sin[s].data()); });
  log.Compare("table of cosines", cos[0], cos[1]);
  log.Compare("table of sines", sin[0], sin[1]);
  std::vector<int32_t> position(77);
  std::iota(position.begin(), position.end(), 100000);
  for (DType dtype : kDTypes) {
    for (RopeLayout layout : {RopeLayout::kHalves, RopeLayout::kPairs, RopeLayout::kPairsToHalves}) {
      const SampleRows in = SampleRows::Random(dtype, 77, 2 * 25, 5, 1, 0);
      SampleRows out[2] = {{dtype, 77, 2 * 25, 0}, {dtype, 77, 2 * 25, 0}};
      Both(isa, [&](Isa which, int s) {
        RopeArgs args{RopeDirection::kForward, layout, dtype, 77, 2, 25, 22};
        args.in = in.view().data;
        args.out = out[s].mut().data;
        args.in_token_stride = args.out_token_stride = 50;
        args.in_head_stride = args.out_head_stride = 25;
        args.position = position.data();
        args.cos = cos[0].data();
        args.sin = sin[0].data();
        args.table_first = 100000;
        args.table_rows = 77;
        Rope(pool, which, args);
      });
      log.Compare(Named("rotation", dtype, 22), out[0], out[1]);
    }
  }
}

void SelfTestActivation(ThreadPool& pool, Isa isa, SelfTestLog& log) {
  for (DType dtype : kDTypes) {
    for (Activation kind : {Activation::kRelu, Activation::kSilu, Activation::kGeluTanh, Activation::kGeluErf,
                            Activation::kSigmoid, Activation::kTanh, Activation::kSoftCap}) {
      const SampleRows gate = SampleRows::Random(dtype, 3, 333, 1, 9), up = SampleRows::Random(dtype, 3, 333, 2),
                       grad = SampleRows::Random(dtype, 3, 333, 3);
      SampleRows y[2] = {{dtype, 3, 333}, {dtype, 3, 333}}, grad_gate[2] = {y[0], y[1]}, grad_up[2] = {y[0], y[1]};
      const GateSpec spec{{kind, 1.5f}, 7.0f, 1.0f};
      Both(isa, [&](Isa which, int s) {
        GateForward(pool, which, {spec, gate.view(), up.view(), y[s].mut()});
        GateBackward(pool, which, {spec, gate.view(), up.view(), grad.view(), grad_gate[s].mut(), grad_up[s].mut()});
      });
      log.Compare(Named("gate", dtype, 333), y[0], y[1]);
      log.Compare(Named("gate gradient", dtype, 333), grad_gate[0], grad_gate[1]);
      log.Compare(Named("up gradient", dtype, 333), grad_up[0], grad_up[1]);
    }
  }
}

void SelfTestElementwise(ThreadPool& pool, Isa isa, SelfTestLog& log) {
  for (DType dtype : kDTypes) {
    const SampleRows a = SampleRows::Random(dtype, 300, 67, 1), b = SampleRows::Random(dtype, 300, 67, 2);
    const std::vector<float> bias = SampleFloats(67, 3);
    const SampleRows empty(dtype, 300, 67);
    for (ElementwiseOp op : {ElementwiseOp::kAdd, ElementwiseOp::kMultiply, ElementwiseOp::kAddScaled}) {
      SampleRows out[2] = {empty, empty};
      Both(isa, [&](Isa which, int s) { Elementwise(pool, which, {op, a.view(), b.view(), out[s].mut(), 0.3f}); });
      log.Compare(Named("sum or product", dtype, 67), out[0], out[1]);
    }
    SampleRows biased[2] = {empty, empty}, dropped[2] = {empty, empty};
    std::vector<float> grad[2] = {std::vector<float>(67), std::vector<float>(67)};
    Both(isa, [&](Isa which, int s) {
      BiasAdd(pool, which, {a.view(), bias.data(), DType::kF32, biased[s].mut()});
      BiasGrad(pool, which, {a.view(), grad[s].data(), false, {}});
      Dropout(pool, which, {a.view(), dropped[s].mut(), RngKey::FromSeed(5), 0.3});
    });
    log.Compare(Named("bias", dtype, 67), biased[0], biased[1]);
    log.Compare(Named("bias gradient", dtype, 67), grad[0], grad[1]);
    log.Compare(Named("dropout", dtype, 67), dropped[0], dropped[1]);
    for (DType to : {DType::kF32, DType::kBF16, DType::kF16}) {
      SampleRows cast[2] = {{to, 300, 67}, {to, 300, 67}};
      Both(isa, [&](Isa which, int s) { Cast(pool, which, a.view(), cast[s].mut()); });
      log.Compare(Named("cast", to, 67), cast[0], cast[1]);
    }
  }
}

void SelfTestLoss(ThreadPool& pool, Isa isa, SelfTestLog& log) {
  for (DType dtype : kDTypes) {
    const SampleRows logits = SampleRows::Random(dtype, 5, 2345, 1, 9);
    const std::vector<int32_t> target = {0, 2344, -1, 1024, 77};
    const std::vector<float> grad_loss = SampleFloats(5, 2);
    std::vector<float> loss[2] = {std::vector<float>(5), std::vector<float>(5)};
    SampleRows grad[2] = {{dtype, 5, 2345}, {dtype, 5, 2345}};
    Both(isa, [&](Isa which, int s) {
      std::vector<LossRow> rows(5);
      const LossPiece piece{logits.view(), 0, 2345, target.data()};
      AddLossPiece(pool, which, piece, rows.data());
      FinishLoss({5, 2345, rows.data(), target.data(), 1e-4f, loss[s].data()});
      LossGrad(pool, which, {piece, rows.data(), 1e-4f, grad_loss.data(), grad[s].mut()});
    });
    log.Compare(Named("loss", dtype, 2345), loss[0], loss[1]);
    log.Compare(Named("loss gradient", dtype, 2345), grad[0], grad[1]);
  }
}

void SelfTestEmbedding(ThreadPool& pool, Isa isa, SelfTestLog& log) {
  std::vector<int32_t> id(600);
  for (size_t t = 0; t < id.size(); ++t) id[t] = static_cast<int32_t>(SampleBits(1, t) % 7);
  for (DType dtype : kDTypes) {
    const SampleRows grad = SampleRows::Random(dtype, 600, 45, 2);
    SampleRows table[2] = {SampleRows::Random(DType::kF32, 7, 45, 3), SampleRows::Random(DType::kF32, 7, 45, 3)};
    SampleRows out[2] = {{dtype, 600, 45}, {dtype, 600, 45}};
    Both(isa, [&](Isa which, int s) {
      ScatterAddRows(pool, which, {grad.view(), id.data(), {}, table[s].mut()});
      GatherRows(pool, which, {table[0].view(), id.data(), out[s].mut()});
    });
    log.Compare(Named("embedding gradient", dtype, 45), table[0], table[1]);
    log.Compare(Named("embedding", dtype, 45), out[0], out[1]);
  }
}

void SelfTestReductions(ThreadPool& pool, Isa isa, SelfTestLog& log) {
  for (DType dtype : kDTypes) {
    const SampleRows x = SampleRows::Random(dtype, 1, 9001, 1);
    std::vector<double> sums[2] = {std::vector<double>(6), std::vector<double>(6)};
    std::vector<float> largest[2] = {std::vector<float>(1), std::vector<float>(1)};
    Both(isa, [&](Isa which, int s) {
      ChunkSums(pool, which, SumOf::kSquares, x.view().data, dtype, 9001, sums[s].data());
      ChunkSums(pool, which, SumOf::kValues, x.view().data, dtype, 9001, sums[s].data() + 3);
      largest[s][0] = AbsMax(pool, which, x.view());
    });
    log.Compare(Named("sums", dtype, 9001), sums[0], sums[1]);
    log.Compare(Named("largest magnitude", dtype, 9001), largest[0], largest[1]);
  }
}

void SelfTestOptimizer(ThreadPool& pool, Isa isa, SelfTestLog& log) {
  const std::vector<float> grad = SampleFloats(1003, 1);
  for (AdamKind kind : {AdamKind::kAdamW, AdamKind::kAdamPax}) {
    std::vector<float> state[2] = {SampleFloats(3 * 1003, 2), SampleFloats(3 * 1003, 2)};
    Both(isa, [&](Isa which, int s) {
      float* weight = state[s].data();
      for (int i = 2 * 1003; i < 3 * 1003; ++i) weight[i] *= weight[i];  // the second moment is not negative
      AdamUpdate(pool, which,
                 {.kind = kind,
                  .rate = 1e-3,
                  .step = 6,
                  .count = 1003,
                  .grad = grad.data(),
                  .weight = weight,
                  .moment1 = weight + 1003,
                  .moment2 = weight + 2006});
    });
    log.Compare(kind == AdamKind::kAdamW ? "adamw" : "adam_pax", state[0], state[1]);
  }
  std::vector<float> state[2] = {SampleFloats(2 * 1003, 2), SampleFloats(2 * 1003, 2)};
  Both(isa, [&](Isa which, int s) {
    SgdUpdate(pool, which, {0.1, 0.9, 1, true, 1003, grad.data(), state[s].data(), state[s].data() + 1003});
  });
  log.Compare("sgd", state[0], state[1]);
}

void SelfTestExperts(ThreadPool& pool, Isa isa, SelfTestLog& log) {
  constexpr int64_t kTokens = 61, kExperts = 24, kTopK = 3;
  const std::vector<float> logits = SampleFloats(kTokens * kExperts, 1, 4);
  for (RouterScore score : {RouterScore::kSoftmax, RouterScore::kSigmoid, RouterScore::kSoftmaxOfTopK}) {
    std::vector<int32_t> expert[2] = {std::vector<int32_t>(kTokens * kTopK), std::vector<int32_t>(kTokens * kTopK)};
    std::vector<float> weight[2] = {std::vector<float>(kTokens * kTopK), std::vector<float>(kTokens * kTopK)};
    Both(isa, [&](Isa which, int s) {
      std::vector<float> scores(kTokens * kExperts);
      Route(pool, which,
            {{.score = score, .experts = kExperts, .top_k = kTopK},
             RowsOf(logits.data(), kTokens, kExperts),
             expert[s].data(),
             weight[s].data(),
             scores.data()});
    });
    log.Compare("chosen experts", expert[0], expert[1]);
    log.Compare("router weights", weight[0], weight[1]);
    std::vector<int32_t> sorted(kTokens * kTopK), row_of(kTokens * kTopK);
    std::vector<int64_t> group_rows(kExperts);
    OrderByExpert({kTokens * kTopK, kExperts, expert[0].data(), sorted.data(), row_of.data(), group_rows.data()});
    for (DType dtype : kDTypes) {
      const SampleRows y = SampleRows::Random(dtype, kTokens * kTopK, 45, 2);
      SampleRows out[2] = {{dtype, kTokens, 45}, {dtype, kTokens, 45}};
      Both(isa, [&](Isa which, int s) {
        CombineExperts(pool, which, {y.view(), row_of.data(), weight[0].data(), kTopK, out[s].mut()});
      });
      log.Compare(Named("combined rows", dtype, 45), out[0], out[1]);
    }
  }
}

}  // namespace octavo::kernels
