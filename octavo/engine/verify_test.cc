// Verification finds equal bits in a sound engine, for every recipe and cache, and finds what a wrong one does: a sum
// in another order, scales multiplied in another order, a code or a cache that is not the trainer's.
#include "octavo/engine/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "octavo/engine/engine_test_support.h"
#include "octavo/quant/quantize_run.h"

namespace octavo::engine {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

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
  explicit Subject(int64_t context = 100) {
    models::ModelConfig config = models::TinyLlama();
    config.max_target_length = context;
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

const VerifyRow& RowOf(const VerifyReport& report, std::string_view what) {
  for (const VerifyRow& row : report.rows) {
    if (row.what == what) return row;
  }
  ADD_FAILURE() << "no row " << what;
  return report.rows.front();
}

TEST(Verify, ASoundEngineHasOneSetOfBits) {
  Subject subject;
  const VerifyModel model{*subject.model};
  int told = 0;
  const VerifyReport report = Verify(model, &model, subject.options, [&](const VerifyRow&) { ++told; });
  EXPECT_TRUE(report.equal()) << VerifyTable(report, subject.options);
  EXPECT_EQ(report.rows.size(), 2u * 2 * 2 + 5);
  EXPECT_EQ(told, static_cast<int>(report.rows.size()));
  EXPECT_EQ(report.rows.back().what, "trainer's forward");
  EXPECT_NE(report.rows[0].hashes[0], report.rows[0].hashes[1]);
  EXPECT_EQ(report.cached, 2 * 64);
  EXPECT_THAT(RowOf(report, "prefix cache hit").from, Each(64));
  EXPECT_THAT(RowOf(report, "prefix cache miss").from, Each(0));
  EXPECT_THAT(VerifyTable(report, subject.options), HasSubstr("from token 64 on\n"));
  EXPECT_THAT(VerifyTable(report, subject.options), HasSubstr("all 26 hashes are equal\n"));
}

// Prompts that end on either side of a page's end: each is compared from where its own cached pages end.
TEST(Verify, PromptsOfSeveralPages) {
  Subject subject(300);
  subject.options.prompts = 3;
  subject.options.tokens = 191;
  subject.options.threads = {2};
  const VerifyModel model{*subject.model};
  const VerifyReport report = Verify(model, &model, subject.options);
  EXPECT_TRUE(report.equal()) << VerifyTable(report, subject.options);
  EXPECT_THAT(RowOf(report, "prefix cache hit").from, ElementsAre(128, 128, 192));
  EXPECT_EQ(report.cached, 128 + 128 + 192);
  EXPECT_THAT(VerifyTable(report, subject.options), HasSubstr("from tokens 128, 128, 192 on\n"));
}

// A context shorter than what was asked for, and than a page.
TEST(Verify, PromptsThatNoPageCanHold) {
  Subject subject(40);
  subject.options.tokens = 100;
  const VerifyModel model{*subject.model};
  const VerifyReport report = Verify(model, &model, subject.options);
  EXPECT_TRUE(report.equal()) << VerifyTable(report, subject.options);
  EXPECT_EQ(report.cached, 0);
  EXPECT_THAT(VerifyTable(report, subject.options),
              HasSubstr("no prompt is longer than a page of 64 tokens: the prefix cache held none of them\n"));
}

// Every factor is varied for every recipe with every cache: two numbers of threads (and a third in the last rows), two
// sizes of batches, all four sizes of pieces (64, 1 and 7 mixed with halves, all), slots, the prefix cache, pages given
// back, and the trainer's forward pass.
class VerifyEachForm : public ::testing::TestWithParam<RecipeCase> {};

TEST_P(VerifyEachForm, HasOneSetOfBits) {
  QuantizedModel subject(Wide(models::TinyLlama()), GetParam());
  subject.Pack();
  VerifyOptions options{.isa = subject.isa()};
  options.kv = GetParam().kv.value_or(ops::KvFormat{});
  options.prompts = 3;
  options.tokens = 66;
  options.threads = {1, 3};
  options.batches = {1, 3};
  options.chunks = {1, 64};
  const VerifyModel served{subject.model(), &subject.provider(), &subject.state()};
  const VerifyModel trained{subject.floats(), &subject.trainer(), &subject.state()};
  const VerifyReport report = Verify(served, &trained, options);
  EXPECT_TRUE(report.equal()) << VerifyTable(report, options);
  EXPECT_EQ(report.rows.size(), 2u * 2 * 2 + 6);
  EXPECT_EQ(report.cached, 3 * 64);
}

std::vector<RecipeCase> EveryForm() {
  std::vector<RecipeCase> result;
  for (const RecipeCase& recipe : std::vector<RecipeCase>{
           {nullptr}, {"int8"}, {"int8", true}, {"int8w"}, {"int4w"}, {"w4a8"}, {"fp8"}, {"fp8", true}}) {
    result.push_back({recipe.recipe, recipe.qwix, ops::KvFormat{Format::kF32, false}});
    result.push_back({recipe.recipe, recipe.qwix, ops::KvFormat{Format::kBF16, false}});
    for (Format format : {Format::kInt8, Format::kInt4, Format::kF8E4M3FN}) {
      for (bool per_head : {false, true}) {
        result.push_back({recipe.recipe, recipe.qwix, ops::KvFormat{format, per_head}});
      }
    }
  }
  return result;
}

INSTANTIATE_TEST_SUITE_P(Recipes, VerifyEachForm, ::testing::ValuesIn(EveryForm()),
                         [](const auto& form) { return NameOf(form.param); });

// The matrix of the verb as it stands, once.
TEST(Verify, TheWholeMatrixInInt8) {
  const RecipeCase form{"int8", true, ops::KvFormat{Format::kInt8, true}};
  QuantizedModel subject(Wide(models::TinyLlama()), form);
  subject.Pack();
  VerifyOptions options{.isa = subject.isa(), .kv = *form.kv};
  const VerifyModel served{subject.model(), &subject.provider(), &subject.state()};
  const VerifyModel trained{subject.floats(), &subject.trainer(), &subject.state()};
  const VerifyReport report = Verify(served, &trained, options);
  EXPECT_TRUE(report.equal()) << VerifyTable(report, options);
  EXPECT_EQ(report.rows.size(), 3u * 3 * 4 + 5);
  EXPECT_THAT(VerifyTable(report, options), HasSubstr("all 328 hashes are equal\n"));
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

// One int8 product of single rows, computed here: exact sums, then both scales in one of two orders.
class OwnProduct : public WithKvFormat {
 public:
  OwnProduct(quant::Provider& next, bool scales_first) : WithKvFormat(&next, {}), scales_first_(scales_first) {}

  std::optional<ops::Var> Dot(ops::Context& context, const ops::DotCall& call) override {
    if (call.site.path != "decoder/layers_1/mlp/wo" || call.lhs.shape()[1] > 1) return WithKvFormat::Dot(context, call);
    const quant::Run run{context.pool, context.isa, context.workspace};
    quant::HowToQuantize how;
    how.format = Format::kInt8;
    how.granularity.channelwise_axes = {0};
    const QArray x = quant::Quantize(run, call.lhs.tensor().Reshape({1, call.lhs.tensor().size()}), how);
    const QArray& w = call.rhs.qarray();
    const int64_t depth = w.qvalue.dim(0), width = w.qvalue.dim(1);
    const Tensor weights = w.qvalue.Contiguous(), scales = w.scale.Contiguous();
    Tensor out = Tensor::Empty({1, 1, width}, DType::kF32);
    for (int64_t n = 0; n < width; ++n) {
      int32_t sum = 0;
      for (int64_t k = 0; k < depth; ++k) sum += x.qvalue.Data<int8_t>()[k] * weights.Data<int8_t>()[k * width + n];
      const auto exact = static_cast<float>(sum);
      const float left = x.scale.Data<float>()[0], right = scales.Data<float>()[n];
      out.MutableData<float>()[n] = scales_first_ ? exact * (left * right) : exact * left * right;
    }
    return ops::Var(out);
  }

 private:
  bool scales_first_;
};

TEST(Verify, AnotherOrderOfScalesIsFoundInInt8) {
  QuantizedModel subject(Wide(models::TinyLlama()), {"int8", true});
  VerifyOptions options{.isa = subject.isa()};
  options.prompts = 2;
  options.tokens = 66;
  options.threads = options.batches = {1};
  options.chunks = {1};
  const VerifyModel trained{subject.floats(), &subject.trainer()};
  const auto verify = [&](bool scales_first) {
    OwnProduct own(subject.provider(), scales_first);
    return Verify({subject.model(), &own}, &trained, options);
  };
  const VerifyReport right = verify(false), wrong = verify(true);
  EXPECT_TRUE(right.equal()) << VerifyTable(right, options);
  // Single rows are found against whole prompts, which the trainer's forward pass agrees with.
  EXPECT_THAT(wrong.different, ::testing::IsSupersetOf(
                                   {"threads 1, batch 1, chunk 1: prompt 0", "threads 1, batch 1, chunk 1: prompt 1"}));
  EXPECT_EQ(RowOf(wrong, "trainer's forward").hashes, wrong.rows[0].hashes);
}

// One code of one weight that is not what the trainer's forward pass makes of its floats.
TEST(Verify, AnotherCodeIsFoundByTheTrainersForward) {
  QuantizedModel subject(Wide(models::TinyLlama()), {"int8", true});
  for (ops::Parameter* parameter : subject.model().parameters()) {
    if (parameter->name != "decoder/layers_1/mlp/wo/kernel") continue;
    int8_t& code = std::get<QArray>(parameter->value).qvalue.MutableData<int8_t>()[1000];
    code = static_cast<int8_t>(code == 127 ? 126 : code + 1);
  }
  subject.Pack();
  VerifyOptions options{.isa = subject.isa()};
  options.prompts = 2;
  options.tokens = 66;
  options.threads = options.batches = {1};
  options.chunks = {7};
  const VerifyModel trained{subject.floats(), &subject.trainer()};
  const VerifyReport report = Verify({subject.model(), &subject.provider()}, &trained, options);
  EXPECT_THAT(report.different, ElementsAre("trainer's forward: prompt 0", "trainer's forward: prompt 1"));
  EXPECT_THAT(VerifyTable(report, options), HasSubstr("\n2 of 14 hashes differ (marked !)\n"));
}

// The trainer's plan stores with a scale per head, the server with one per token.
TEST(Verify, AnotherCacheThanTheTrainersIsFound) {
  QuantizedModel subject(Wide(models::TinyLlama()), {nullptr, false, ops::KvFormat{Format::kInt8, true}});
  VerifyOptions options{.isa = subject.isa()};
  options.prompts = 1;
  options.threads = options.batches = {1};
  options.chunks = {7};
  const VerifyModel trained{subject.floats(), &subject.trainer()};
  options.kv = {Format::kInt8, true};
  const VerifyReport same = Verify({subject.model()}, &trained, options);
  EXPECT_TRUE(same.equal()) << VerifyTable(same, options);
  options.kv = {Format::kInt8, false};
  EXPECT_THAT(Verify({subject.model()}, &trained, options).different, ElementsAre("trainer's forward: prompt 0"));
}

}  // namespace
}  // namespace octavo::engine
