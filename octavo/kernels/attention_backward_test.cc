#include <gtest/gtest.h>

#include "octavo/kernels/attention_cases.h"
#include "octavo/kernels/attention_oracle.h"
#include "octavo/kernels/numeric_gradient.h"

namespace octavo::kernels {
namespace {

std::vector<NamedCase> Cases() {
  std::vector<NamedCase> cases;
  for (int64_t t : {1, 2, 63, 64, 65, 130}) cases.push_back({"length", With(HeadsOf(2, 2, 16, 16), {{t, t, 0}})});
  for (int64_t t : {255, 256, 257, 1025}) cases.push_back({"leaves", With(HeadsOf(1, 1, 8, 8), {{t, t, 0}})});
  for (int64_t d : {1, 5, 33, 80, 300}) {
    cases.push_back({"widths", With(HeadsOf(2, 2, d, d == 300 ? 7 : d), {{70, 70, 0}})});
  }
  cases.push_back({"wide values", With(HeadsOf(1, 1, 8, 300), {{70, 70, 0}})});
  cases.push_back({"mla", With(HeadsOf(2, 2, 192, 128), {{70, 70, 0}})});
  cases.push_back({"grouped", With(HeadsOf(6, 2, 32, 16), {{300, 300, 0}})});
  AttentionShape shape = HeadsOf(4, 2, 16, 16);
  shape.causal = false;
  cases.push_back({"both directions", With(shape, {{100, 150, 0}, {300, 90, 0}})});
  shape.window = 10;
  cases.push_back({"window to both sides", With(shape, {{100, 150, 0}})});
  shape.causal = true;
  cases.push_back({"window", With(shape, {{700, 700, 0}})});
  shape.window = 0;
  shape.chunk = 50;
  cases.push_back({"local chunks", With(shape, {{200, 200, 0}})});
  shape.chunk = 0;
  shape.soft_cap = 5;
  cases.push_back({"soft cap", With(shape, {{130, 130, 0}})});
  shape.sinks = &kOwnSinks;
  cases.push_back({"sinks and soft cap", With(shape, {{530, 530, 0}, {1, 90, -1}})});
  shape.soft_cap = 0;
  cases.push_back({"sinks", With(shape, {{130, 130, 0}, {3, 0, 0}})});
  cases.push_back({"packed", With(HeadsOf(2, 1, 24, 24), {{65, 65, 0}, {1, 1, 0}, {0, 5, 0}, {300, 300, 0}})});
  cases.push_back({"a late chunk", With(HeadsOf(2, 1, 24, 24), {{300, 400, -1}, {70, 1000, -1}, {20, 500, 250}})});
  CaseSpec stored = With(HeadsOf(4, 2, 48, 32), {{100, 100, 0}, {70, 70, 0}});
  stored.key_form = {Format::kInt8, false, true};
  stored.value_form = {Format::kBF16, false, true};
  stored.paged = true;
  stored.dtype = DType::kBF16;
  cases.push_back({"stored forms", stored});
  return cases;
}

bool HasAvx2() { return ChooseIsa().isa >= Isa::kAvx2; }

TEST(AttentionBackward, FastEqualsReference) {
  if (!HasAvx2()) GTEST_SKIP() << "no avx2 here";
  for (const NamedCase& named : Cases()) {
    const AttentionCase problem(named.spec);
    const ForwardOutput forward = RunForward(problem, ChooseIsa().isa, 2);
    const BackwardOutput reference = RunBackward(problem, forward, Isa::kReference);
    // One thread takes whole units; seven for two or four units share them.
    for (int threads : {1, 7}) {
      EXPECT_TRUE(RunBackward(problem, forward, ChooseIsa().isa, threads) == reference)
          << Describe(named) << " threads " << threads;
    }
  }
}

TEST(AttentionBackward, ThreadsDoNotMatter) {
  AttentionShape shape = HeadsOf(4, 2, 16, 24);
  shape.sinks = &kOwnSinks;
  const AttentionCase problem(With(shape, {{1100, 1100, 0}, {300, 300, 0}}));
  const ForwardOutput forward = RunForward(problem, ChooseIsa().isa, 2);
  const BackwardOutput expected = RunBackward(problem, forward, ChooseIsa().isa, 1);
  for (int threads : {2, 3, 7}) {
    EXPECT_TRUE(RunBackward(problem, forward, ChooseIsa().isa, threads) == expected) << threads;
  }
}

TEST(AttentionBackward, ASequenceInABatchIsTheSequenceAlone) {
  AttentionShape shape = HeadsOf(4, 2, 16, 24);
  shape.sinks = &kOwnSinks;
  const CaseSpec spec = With(shape, {{33, 33, 0}, {600, 600, 0}, {1, 1, 0}, {90, 200, -1}});
  const AttentionCase batch(spec);
  const BackwardOutput all = RunBackward(batch, RunForward(batch, ChooseIsa().isa), ChooseIsa().isa, 2);
  for (size_t s = 0; s < spec.segments.size(); ++s) {
    CaseSpec one = spec;
    one.segments = {spec.segments[s]};
    const AttentionCase problem(one, {s});
    const BackwardOutput alone = RunBackward(problem, RunForward(problem, ChooseIsa().isa), ChooseIsa().isa);
    const AttentionSequence& place = batch.sequences()[s];
    const auto equal = [&](const SampleRows& many, const SampleRows& few, int64_t begin) {
      for (int64_t t = 0; t < few.rows(); ++t) {
        for (int64_t c = 0; c < few.cols(); ++c) {
          if (many.Get(begin + t, c) != few.Get(t, c)) return false;
        }
      }
      return true;
    };
    EXPECT_TRUE(equal(all.grad_query, alone.grad_query, place.query_begin)) << s;
    EXPECT_TRUE(equal(all.grad_key, alone.grad_key, place.kv_begin)) << s;
    EXPECT_TRUE(equal(all.grad_value, alone.grad_value, place.kv_begin)) << s;
    for (int64_t h = 0; h < 4; ++h) EXPECT_EQ(all.grad_sinks[s * 4 + h], alone.grad_sinks[h]) << s;
  }
}

std::vector<double> GradOutOf(const AttentionCase& problem, int64_t s, int64_t head) {
  const int64_t v_dim = problem.spec().shape.v_dim;
  std::vector<double> grad;
  for (int64_t i = 0; i < problem.sequences()[s].query_count; ++i) {
    for (int64_t c = 0; c < v_dim; ++c) {
      grad.push_back(problem.grad_out().Get(problem.sequences()[s].query_begin + i, head * v_dim + c));
    }
  }
  return grad;
}

double WorstDifference(const SampleRows& found, int64_t row0, int64_t col0, int64_t cols,
                       const std::vector<double>& want) {
  double worst = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const int64_t row = static_cast<int64_t>(i) / cols, col = static_cast<int64_t>(i) % cols;
    worst = std::max(worst, std::abs(found.Get(row0 + row, col0 + col) - want[i]));
  }
  return worst;
}

TEST(AttentionBackward, AgreesWithTheFormulaInDouble) {
  for (const NamedCase& named : Cases()) {
    const AttentionCase problem(named.spec);
    const BackwardOutput found = RunBackward(problem, RunForward(problem, ChooseIsa().isa, 2), ChooseIsa().isa, 2);
    const AttentionCall call = problem.call();
    const AttentionShape& shape = call.shape;
    const double tolerance = named.spec.dtype == DType::kBF16 ? 0.2 : 2e-5;
    const int64_t group = shape.query_heads / shape.kv_heads;
    for (int64_t s = 0; s < call.sequence_count; ++s) {
      for (int64_t kv_head = 0; kv_head < shape.kv_heads; ++kv_head) {
        std::vector<double> key(call.sequences[s].kv_length * shape.qk_dim);
        std::vector<double> value(call.sequences[s].kv_length * shape.v_dim);
        for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
          const OracleGradients want = OracleBackward(OracleOf(call, s, head), GradOutOf(problem, s, head));
          for (size_t i = 0; i < key.size(); ++i) key[i] += want.key[i];
          for (size_t i = 0; i < value.size(); ++i) value[i] += want.value[i];
          EXPECT_LT(WorstDifference(found.grad_query, call.sequences[s].query_begin, head * shape.qk_dim, shape.qk_dim,
                                    want.query),
                    tolerance)
              << Describe(named);
          if (shape.sinks != nullptr) {
            EXPECT_NEAR(found.grad_sinks[s * shape.query_heads + head], want.sink, tolerance) << Describe(named);
          }
        }
        const int64_t row = call.sequences[s].kv_begin;
        EXPECT_LT(WorstDifference(found.grad_key, row, kv_head * shape.qk_dim, shape.qk_dim, key), tolerance)
            << Describe(named);
        EXPECT_LT(WorstDifference(found.grad_value, row, kv_head * shape.v_dim, shape.v_dim, value), tolerance)
            << Describe(named);
      }
    }
  }
}

// The oracle's gradients are the differences of its own forward pass.
TEST(AttentionBackward, TheFormulaIsTheDerivative) {
  for (bool capped : {false, true}) {
    AttentionShape shape = HeadsOf(1, 1, 6, 5);
    shape.window = 7;
    shape.sinks = &kOwnSinks;
    shape.soft_cap = capped ? 1.5f : 0.0f;
    const AttentionCase problem(With(shape, {{11, 13, -1}}));
    const OracleInput in = OracleOf(problem.call(), 0, 0);
    const std::vector<double> grad_out = GradOutOf(problem, 0, 0);
    const OracleGradients found = OracleBackward(in, grad_out);
    const auto loss = [&](const OracleInput& at) {
      const OracleOutput out = OracleForward(at);
      double sum = 0;
      for (size_t i = 0; i < grad_out.size(); ++i) sum += grad_out[i] * out.out[i];
      return sum;
    };
    const auto check = [&](std::vector<double> OracleInput::*field, const std::vector<double>& gradient) {
      OracleInput moved = in;
      const std::vector<double> numeric = NumericGradient(in.*field, [&](const std::vector<double>& x) {
        moved.*field = x;
        return loss(moved);
      });
      for (size_t i = 0; i < gradient.size(); ++i) EXPECT_NEAR(gradient[i], numeric[i], 1e-8) << i;
    };
    check(&OracleInput::query, found.query);
    check(&OracleInput::key, found.key);
    check(&OracleInput::value, found.value);
    OracleInput above = in, below = in;
    above.sink += 1e-5;
    below.sink -= 1e-5;
    EXPECT_NEAR(found.sink, (loss(above) - loss(below)) / 2e-5, 1e-8);
  }
}

// Swapping two leaves of queries is a matter of bits only, without a mask. It must show.
TEST(AttentionBackward, AnotherOrderOfLeavesWouldShow) {
  AttentionShape shape = HeadsOf(1, 1, 16, 16);
  shape.causal = false;
  const CaseSpec spec = With(shape, {{768, 64, 0}});
  const AttentionCase problem(spec);
  const ForwardOutput forward = RunForward(problem, ChooseIsa().isa);
  const BackwardOutput expected = RunBackward(problem, forward, ChooseIsa().isa);
  // The same 768 queries as three sequences of one leaf each; their sum in another order.
  AttentionCase parts(spec);
  const AttentionSequence all = parts.sequences()[0];
  std::vector<BackwardOutput> leaves;
  for (int64_t begin = 0; begin < 768; begin += 256) {
    AttentionSequence part = all;
    part.query_begin = begin;
    part.query_count = 256;
    part.position = begin;
    parts.sequences() = {part};
    leaves.push_back(RunBackward(parts, forward, ChooseIsa().isa));
  }
  int64_t ascending = 0, other = 0;
  for (int64_t k = 0; k < 64; ++k) {
    for (int64_t c = 0; c < 16; ++c) {
      const float a = leaves[0].grad_key.Get(k, c), b = leaves[1].grad_key.Get(k, c), d = leaves[2].grad_key.Get(k, c);
      ascending += (a + b) + d != expected.grad_key.Get(k, c);
      other += (a + d) + b != expected.grad_key.Get(k, c);
    }
  }
  EXPECT_EQ(ascending, 0);
  EXPECT_GT(other, 50);
}

TEST(AttentionBackward, KnownHash) {
  AttentionShape shape = HeadsOf(4, 2, 40, 24);
  shape.sinks = &kOwnSinks;
  shape.soft_cap = 20;
  const AttentionCase problem(With(shape, {{600, 600, 0}, {70, 70, 0}}));
  for (Isa isa : {Isa::kReference, ChooseIsa().isa}) {
    const BackwardOutput found = RunBackward(problem, RunForward(problem, isa), isa, 2);
    EXPECT_EQ(HashOf(found.grad_query), 10248820648739340185u) << NameOf(isa);
    EXPECT_EQ(HashOf(found.grad_key), 17253502831215517476u) << NameOf(isa);
    EXPECT_EQ(HashOf(found.grad_value), 6618763925682863508u) << NameOf(isa);
    EXPECT_EQ(HashOf(found.grad_sinks), 3194399295504521354u) << NameOf(isa);
  }
}

}  // namespace
}  // namespace octavo::kernels
