// Verification finds equal bits in a sound engine, for floats, recipes and caches, and finds a sum in another order.
#include "octavo/engine/verify.h"

#include <gtest/gtest.h>

#include <cmath>

#include "octavo/models/test_models.h"

namespace octavo::engine {
namespace {

// One projection summed from the other end whenever a step has a single row: what a careless matrix-vector kernel does.
class AnotherOrder : public ops::Interceptor {
 public:
  std::optional<ops::Var> Dot(ops::Context&, const ops::DotCall& call) override {
    if (call.site.path != "decoder/layers_1/mlp/wo" || call.lhs.shape()[1] > 1) return std::nullopt;
    const Tensor x = call.lhs.tensor().Contiguous(), w = call.rhs.tensor().Contiguous();
    const int64_t depth = w.dim(0), width = w.dim(1);
    Tensor out = Tensor::Zeros({1, 1, width}, DType::kF32);
    const auto sums = out.MutableValues<float>();
    for (int64_t n = 0; n < width; ++n) {
      for (int64_t k = depth; k-- > 0;) {
        float& sum = sums[static_cast<size_t>(n)];
        sum = std::fma(x.Values<float>()[static_cast<size_t>(k)], w.Values<float>()[static_cast<size_t>(k * width + n)],
                       sum);
      }
    }
    return ops::Var(out);
  }
};

struct Subject {
  Subject() {
    models::ModelConfig config = models::TinyLlama();
    config.max_target_length = 100;
    model = models::MakeModel(config);
    models::Initialize(*model, RngKey::FromSeed(5), bench.pool);
    options.prompts = 2;
    options.tokens = 66;
    options.threads = {1, 2};
    options.batches = {1, 2};
    options.chunks = {7, 0};
  }
  ops::TestBench bench;
  std::unique_ptr<models::Model> model;
  VerifyOptions options{.isa = bench.context.isa};
};

TEST(Verify, ASoundEngineHasOneSetOfBits) {
  for (Format format : {Format::kF32, Format::kInt8}) {
    Subject subject;
    subject.options.kv = {format, true};
    const VerifyModel model{*subject.model};
    int told = 0;
    const VerifyReport report = Verify(model, &model, subject.options, [&](const VerifyRow&) { ++told; });
    EXPECT_TRUE(report.equal()) << VerifyTable(report, subject.options);
    EXPECT_EQ(report.rows.size(), 2u * 2 * 2 + 5);
    EXPECT_EQ(told, static_cast<int>(report.rows.size()));
    EXPECT_EQ(report.rows.back().what, "trainer's forward");
    EXPECT_NE(report.rows[0].hashes[0], report.rows[0].hashes[1]);
    bool hit = false;
    for (const VerifyRow& row : report.rows) hit = hit || row.tail_only;
    EXPECT_TRUE(hit);
    EXPECT_NE(VerifyTable(report, subject.options).find("all 26 hashes are equal"), std::string::npos);
  }
}

TEST(Verify, AnotherOrderOfASumIsFound) {
  Subject subject;
  AnotherOrder wrong;
  subject.options.chunks = {0, 1};
  subject.options.threads = {1};
  const VerifyModel served{*subject.model, &wrong}, trained{*subject.model};
  const VerifyReport report = Verify(served, &trained, subject.options);
  EXPECT_FALSE(report.equal());
  // Steps of one row are the odd ones; whole prompts in one piece are not.
  EXPECT_EQ(report.different.front(), "threads 1, batch 1, chunk 1: prompt 0");
  EXPECT_NE(VerifyTable(report, subject.options).find("!"), std::string::npos);
}

// A cache that the trainer does not apply.
TEST(Verify, AnotherCacheFormatIsFound) {
  Subject subject;
  subject.options.kv = {Format::kInt8, false};
  subject.options.threads = subject.options.batches = {1};
  const VerifyModel model{*subject.model};
  const VerifyReport int8 = Verify(model, nullptr, subject.options);
  subject.options.kv = {};
  const VerifyReport floats = Verify(model, nullptr, subject.options);
  EXPECT_TRUE(int8.equal());
  EXPECT_NE(int8.rows[0].hashes, floats.rows[0].hashes);
}

}  // namespace
}  // namespace octavo::engine
