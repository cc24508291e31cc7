#include <gtest/gtest.h>

#include "octavo/base/error.h"
#include "octavo/kernels/attention_cases.h"
#include "octavo/kernels/attention_oracle.h"

namespace octavo::kernels {
namespace {

// Every feature at least once, lengths around every block border, each alone and together.
std::vector<NamedCase> Cases() {
  std::vector<NamedCase> cases;
  for (int64_t t : {1, 2, 63, 64, 65, 130}) cases.push_back({"length", With(HeadsOf(2, 2, 16, 16), {{t, t, 0}})});
  for (int64_t t : {1023, 1024, 1025}) cases.push_back({"super-block", With(HeadsOf(1, 1, 8, 8), {{t, t, 0}})});
  cases.push_back({"three super-blocks", With(HeadsOf(2, 1, 8, 24), {{2100, 2100, 0}})});
  for (int64_t d : {1, 5, 33, 80, 300, 513}) {
    cases.push_back({"widths", With(HeadsOf(2, 2, d, d == 300 ? 7 : d), {{70, 70, 0}})});
  }
  cases.push_back({"mla", With(HeadsOf(4, 4, 192, 128), {{90, 90, 0}})});
  cases.push_back({"grouped", With(HeadsOf(6, 2, 32, 16), {{100, 100, 0}})});
  cases.push_back({"one key head", With(HeadsOf(5, 1, 32, 16), {{67, 67, 0}})});
  AttentionShape shape = HeadsOf(4, 2, 16, 16);
  shape.causal = false;
  cases.push_back({"both directions", With(shape, {{100, 150, 0}, {3, 1100, 0}})});
  shape.window = 10;
  cases.push_back({"window to both sides", With(shape, {{100, 150, 0}})});
  shape.causal = true;
  cases.push_back({"window", With(shape, {{1200, 1200, 0}})});
  shape.window = 200;
  cases.push_back({"wide window", With(shape, {{1300, 1300, 0}, {5, 1400, -1}, {1, 1500, -1}})});
  shape.window = 0;
  shape.chunk = 50;
  cases.push_back({"local chunks", With(shape, {{200, 200, 0}, {2, 300, -1}})});
  shape.chunk = 0;
  shape.soft_cap = 5;
  cases.push_back({"soft cap", With(shape, {{130, 130, 0}, {2, 90, -1}})});
  shape.sinks = &kOwnSinks;
  cases.push_back({"sinks and soft cap", With(shape, {{130, 130, 0}, {1, 90, -1}})});
  shape.soft_cap = 0;
  cases.push_back({"sinks", With(shape, {{130, 130, 0}, {2, 1090, -1}, {3, 0, 0}})});
  cases.push_back(
      {"packed", With(HeadsOf(2, 1, 24, 24), {{65, 65, 0}, {1, 1, 0}, {0, 5, 0}, {200, 200, 0}, {7, 77, -1}})});
  for (int64_t rows = 1; rows <= 9; ++rows)
    cases.push_back({"few rows", With(HeadsOf(rows, 1, 40, 72), {{1, 1100, -1}})});
  cases.push_back(
      {"few rows of several queries", With(HeadsOf(2, 1, 16, 16), {{3, 70, -1}, {4, 64, -1}, {2, 1025, -1}})});
  const KvForm forms[] = {
      {Format::kBF16, false, true},  {Format::kF16, false, true},      {Format::kInt8, false, true},
      {Format::kInt8, false, false}, {Format::kInt4, false, true},     {Format::kInt4, true, true},
      {Format::kInt4, true, false},  {Format::kF8E4M3FN, false, true}, {Format::kF8E5M2, false, false}};
  for (const KvForm& form : forms) {
    for (int64_t width : {64, 19}) {
      CaseSpec spec = With(HeadsOf(4, 2, width, width), {{70, 100, -1}, {1, 200, -1}, {2, 77, -1}});
      spec.key_form = form;
      spec.value_form = form;
      cases.push_back({"stored form", spec});
      spec.paged = true;
      cases.push_back({"stored form in pages", spec});
    }
  }
  CaseSpec mixed = With(HeadsOf(4, 2, 48, 32), {{70, 1100, -1}, {1, 1200, -1}});
  mixed.key_form = forms[2];
  mixed.value_form = forms[5];
  mixed.paged = true;
  mixed.dtype = DType::kBF16;
  mixed.shape.sinks = &kOwnSinks;
  mixed.shape.window = 500;
  cases.push_back({"everything", mixed});
  return cases;
}

bool HasAvx2() { return ChooseIsa().isa >= Isa::kAvx2; }

TEST(AttentionForward, FastEqualsReference) {
  if (!HasAvx2()) GTEST_SKIP() << "no avx2 here";
  for (const NamedCase& named : Cases()) {
    const AttentionCase problem(named.spec);
    const ForwardOutput reference = RunForward(problem, Isa::kReference);
    for (int threads : {1, 3}) {
      EXPECT_TRUE(RunForward(problem, ChooseIsa().isa, threads) == reference)
          << Describe(named) << " threads " << threads;
    }
  }
}

TEST(AttentionForward, AgreesWithTheFormulaInDouble) {
  for (const NamedCase& named : Cases()) {
    const AttentionCase problem(named.spec);
    const ForwardOutput found = RunForward(problem, ChooseIsa().isa, 2);
    const AttentionCall call = problem.call();
    const double tolerance = named.spec.dtype == DType::kBF16 ? 4e-3 : 3e-6;
    double worst = 0;
    for (int64_t s = 0; s < call.sequence_count; ++s) {
      for (int64_t head = 0; head < call.shape.query_heads; ++head) {
        const OracleOutput want = OracleForward(OracleOf(call, s, head));
        for (int64_t i = 0; i < call.sequences[s].query_count; ++i) {
          const int64_t token = call.sequences[s].query_begin + i;
          for (int64_t c = 0; c < call.shape.v_dim; ++c) {
            const double out = found.out.Get(token, head * call.shape.v_dim + c);
            worst = std::max(worst, std::abs(out - want.out[i * call.shape.v_dim + c]));
          }
          const double lse = found.lse[token * call.shape.query_heads + head];
          if (std::isinf(want.lse[i])) {
            EXPECT_EQ(lse, want.lse[i]) << Describe(named);
          } else {
            EXPECT_NEAR(lse, want.lse[i], 1e-5) << Describe(named);
          }
        }
      }
    }
    EXPECT_LT(worst, tolerance) << Describe(named);
  }
}

// Any split of the queries into calls gives the rows of the whole.
TEST(AttentionForward, ChunksOfAPrefillAreItsRows) {
  AttentionShape shape = HeadsOf(4, 2, 32, 16);
  shape.sinks = &kOwnSinks;
  for (int64_t window : {0, 300}) {
    shape.window = window;
    CaseSpec spec = With(shape, {{1300, 1300, 0}});
    spec.key_form.format = Format::kInt8;
    spec.value_form.format = Format::kBF16;
    AttentionCase whole(spec);
    const ForwardOutput expected = RunForward(whole, ChooseIsa().isa, 2);
    for (int64_t chunk : {1, 7, 64, 500}) {
      AttentionCase parts(spec);
      const AttentionSequence all = parts.sequences()[0];
      parts.sequences().clear();
      // One-token chunks at the beginning, around the super-block and at the end: all of them would take long.
      for (int64_t begin = 0; begin < 1300; begin += chunk) {
        AttentionSequence part = all;
        part.query_begin = begin;
        part.query_count = std::min(chunk, 1300 - begin);
        part.position = begin;
        part.kv_length = begin + part.query_count;  // later keys are not written yet
        parts.sequences().push_back(part);
      }
      EXPECT_TRUE(RunForward(parts, ChooseIsa().isa, 2) == expected) << "window " << window << " chunk " << chunk;
    }
  }
}

TEST(AttentionForward, ThreadsDoNotMatter) {
  for (const CaseSpec& spec : {With(HeadsOf(6, 2, 32, 32), {{300, 300, 0}, {1, 5000, -1}, {40, 1100, -1}}),
                               With(HeadsOf(1, 1, 16, 16), {{1, 9000, -1}})}) {
    const AttentionCase problem(spec);
    const ForwardOutput expected = RunForward(problem, ChooseIsa().isa, 1);
    for (int threads : {2, 3, 7}) EXPECT_TRUE(RunForward(problem, ChooseIsa().isa, threads) == expected) << threads;
  }
}

TEST(AttentionForward, ASequenceInABatchIsTheSequenceAlone) {
  CaseSpec spec = With(HeadsOf(4, 2, 24, 24), {{33, 33, 0}, {1100, 1100, 0}, {1, 1300, -1}, {90, 200, -1}});
  for (bool paged : {false, true}) {
    spec.paged = paged;
    const AttentionCase batch(spec);
    const ForwardOutput all = RunForward(batch, ChooseIsa().isa, 2);
    for (size_t s = 0; s < spec.segments.size(); ++s) {
      CaseSpec one = spec;
      one.segments = {spec.segments[s]};
      one.paged = !paged;  // where the keys lie does not matter either
      const ForwardOutput alone = RunForward(AttentionCase(one, {s}), ChooseIsa().isa, 1);
      const int64_t begin = batch.sequences()[s].query_begin, heads = spec.shape.query_heads;
      for (int64_t i = 0; i < spec.segments[s].queries; ++i) {
        for (int64_t c = 0; c < alone.out.cols(); ++c) ASSERT_EQ(all.out.Get(begin + i, c), alone.out.Get(i, c)) << s;
        for (int64_t h = 0; h < heads; ++h) ASSERT_EQ(all.lse[(begin + i) * heads + h], alone.lse[i * heads + h]) << s;
      }
    }
  }
}

TEST(AttentionForward, QuantizedKeysAreTheirDequantizedNumbers) {
  for (Format format : {Format::kInt8, Format::kInt4, Format::kF8E4M3FN, Format::kF8E5M2, Format::kBF16}) {
    CaseSpec spec = With(HeadsOf(4, 2, 48, 32), {{100, 1100, -1}, {1, 300, -1}});
    spec.key_form = {format, format == Format::kInt4, true};
    spec.value_form = {format, false, false};
    const AttentionCase stored(spec);
    AttentionCall call = stored.call();
    std::vector<float> key(stored.keys() * 2 * 48), value(stored.keys() * 2 * 32);
    for (int64_t s = 0; s < call.sequence_count; ++s) {
      for (int64_t k = 0; k < call.sequences[s].kv_length; ++k) {
        for (int64_t h = 0; h < 2; ++h) {
          const int64_t row = (call.sequences[s].kv_begin + k) * 2 + h;
          ReadKvRow(call.key, call.sequences[s], h, k, 48, &key[row * 48]);
          ReadKvRow(call.value, call.sequences[s], h, k, 32, &value[row * 32]);
        }
      }
    }
    call.key = {key.data(), Format::kF32, false, 0, 2 * 48 * 4, 48 * 4};
    call.value = {value.data(), Format::kF32, false, 0, 2 * 32 * 4, 32 * 4};
    const ForwardOutput expected = RunForward(stored, ChooseIsa().isa);
    ForwardOutput found = expected;
    ThreadPool pool(2);
    Workspace workspace;
    std::fill(found.lse.begin(), found.lse.end(), -1.0f);
    AttentionForward(pool, ChooseIsa().isa, workspace, call, {AttentionCase::View(found.out, 4, 32), found.lse.data()});
    EXPECT_TRUE(found == expected) << Info(format).name;
  }
}

TEST(AttentionForward, RowsThatSeeNothingGiveZero) {
  AttentionShape shape = HeadsOf(2, 1, 16, 16);
  shape.causal = false;
  shape.window = 4;
  for (Isa isa : {Isa::kReference, ChooseIsa().isa}) {
    for (int64_t queries : {1, 40}) {
      const AttentionCase problem(With(shape, {{queries, 100, 500}, {queries, 0, 0}}));
      const ForwardOutput found = RunForward(problem, isa);
      for (int64_t t = 0; t < problem.tokens(); ++t) {
        for (int64_t c = 0; c < 32; ++c) EXPECT_EQ(found.out.Get(t, c), 0.0f);
        EXPECT_EQ(found.lse[t * 2], -std::numeric_limits<float>::infinity());
      }
    }
  }
}

// Without a mask the order of the keys is a matter of bits only: other blocks, other super-blocks, other bits.
TEST(AttentionForward, AnotherOrderOfBlocksWouldShow) {
  AttentionShape shape = HeadsOf(1, 1, 16, 16);
  shape.causal = false;
  const CaseSpec spec = With(shape, {{4, 2048, 0}});
  const AttentionCase problem(spec);
  const ForwardOutput expected = RunForward(problem, ChooseIsa().isa);
  const auto swapped = [&](int64_t a, int64_t b, int64_t length) {
    AttentionCase other(spec);
    AttentionCall call = other.call();
    std::vector<int32_t> pages(32);
    for (int32_t i = 0; i < 32; ++i) pages[i] = i;
    for (int64_t i = 0; i < length; ++i) std::swap(pages[a + i], pages[b + i]);
    AttentionSequence sequence = call.sequences[0];
    sequence.page_table = pages.data();
    call.sequences = &sequence;
    ForwardOutput found{SampleRows(DType::kF32, 4, 16), std::vector<float>(4)};
    ThreadPool pool(1);
    Workspace workspace;
    AttentionForward(pool, ChooseIsa().isa, workspace, call, {AttentionCase::View(found.out, 1, 16), found.lse.data()});
    return found;
  };
  EXPECT_TRUE(swapped(0, 0, 0) == expected);
  EXPECT_FALSE(swapped(0, 1, 1).out == expected.out);    // two blocks of one super-block
  EXPECT_FALSE(swapped(0, 16, 1).out == expected.out);   // blocks of two super-blocks
  EXPECT_FALSE(swapped(0, 16, 16).out == expected.out);  // the super-blocks themselves
}

TEST(AttentionForward, SaysWhichKernelAndWhyNotAFasterOne) {
  const AttentionCase problem(With(HeadsOf(4, 2, 16, 16), {{1, 10, -1}, {100, 100, 0}}));
  const AttentionCall call = problem.call();
  const AttentionChoice decode = ChooseAttention(Isa::kAvx2, call, call.sequences[0]);
  EXPECT_EQ(decode.name, "few rows avx2");
  EXPECT_TRUE(decode.declined.empty());
  const AttentionChoice prefill = ChooseAttention(Isa::kAvx2, call, call.sequences[1]);
  EXPECT_EQ(prefill.name, "panels avx2");
  ASSERT_EQ(prefill.declined.size(), 2u);
  EXPECT_EQ(prefill.declined[0], "few rows avx2: 200 rows share a key head, it takes 8 at most");
  const AttentionChoice reference = ChooseAttention(Isa::kReference, call, call.sequences[0]);
  EXPECT_EQ(reference.name, "reference");
  EXPECT_EQ(reference.declined.size(), 3u);
  EXPECT_EQ(ChooseAttention(Isa::kAvx512, call, call.sequences[1]).name, "panels avx512");
}

std::string ErrorOf(const AttentionCall& call) {
  ThreadPool pool(1);
  Workspace workspace;
  std::vector<float> out(1000);
  try {
    AttentionForward(pool, Isa::kReference, workspace, call, {{out.data(), DType::kF32, 64, 16}, nullptr});
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

TEST(AttentionForward, RefusesWhatDoesNotFit) {
  const AttentionCase problem(With(HeadsOf(4, 2, 16, 16), {{3, 10, -1}}));
  EXPECT_EQ(ErrorOf(problem.call()), "");
  AttentionCall call = problem.call();
  call.shape.kv_heads = 3;
  EXPECT_EQ(ErrorOf(call), "Attention: 4 query heads do not divide over 3 key heads");
  call = problem.call();
  call.key.format = Format::kNF4;
  EXPECT_EQ(ErrorOf(call), "Attention: keys are stored as nf4, which attention cannot read");
  call = problem.call();
  call.key.format = Format::kInt8;
  EXPECT_EQ(ErrorOf(call), "Attention: keys are stored as int8 but have no scales");
  call = problem.call();
  call.value.packed = true;
  EXPECT_EQ(ErrorOf(call), "Attention: values are packed, but stored as float32; only int4 is");
  call = problem.call();
  call.value.key_stride = 7;
  EXPECT_EQ(ErrorOf(call),
            "Attention: values have strides of 7 bytes (key) and 72 bytes (head) for vectors of 64 bytes");
  call = problem.call();
  call.query.dtype = DType::kI8;
  EXPECT_EQ(ErrorOf(call), "Attention: query must be f32 or bf16, found i8");
  call = problem.call();
  call.shape.soft_cap = -1;
  EXPECT_EQ(ErrorOf(call), "Attention: soft_cap is -1, expected 0 (none) or a positive number");
}

// These numbers change when any order of summation changes; both compilers and both instruction sets give them.
TEST(AttentionForward, KnownHash) {
  AttentionShape shape = HeadsOf(4, 2, 40, 24);
  shape.sinks = &kOwnSinks;
  shape.soft_cap = 20;
  CaseSpec spec = With(shape, {{1100, 1100, 0}, {1, 2500, -1}});
  const AttentionCase problem(spec);
  for (Isa isa : {Isa::kReference, ChooseIsa().isa}) {
    const ForwardOutput found = RunForward(problem, isa, 2);
    EXPECT_EQ(HashOf(found.out), 5916279754689018389u) << NameOf(isa);
    EXPECT_EQ(HashOf(found.lse), 13976216233571747495u) << NameOf(isa);
  }
}

}  // namespace
}  // namespace octavo::kernels
