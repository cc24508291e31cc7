// Losses and comparisons of small random models, against logits that were computed whole.
#include "octavo/eval/compare.h"

#include <gtest/gtest.h>

#include "octavo/base/digest.h"
#include "octavo/base/error.h"
#include "octavo/eval/row_numbers.h"
#include "octavo/eval/text_loss.h"
#include "octavo/models/test_models.h"
#include "octavo/quant/provider.h"
#include "octavo/quant/recipe.h"

namespace octavo::eval {
namespace {

std::unique_ptr<models::Model> TinyModel(uint64_t seed, const models::ModelConfig& config = models::TinyLlama()) {
  auto model = models::MakeModel(config);
  ThreadPool pool(1);
  models::Initialize(*model, RngKey::FromSeed(seed), pool);
  return model;
}

std::vector<int32_t> RandomTokens(int64_t count) {
  return models::RandomBatch(1, count, 61, false, 3).tokens.ToVector<int32_t>();
}

ops::Parameter& Find(models::Model& model, const std::string& name) {
  for (ops::Parameter* parameter : model.parameters()) {
    if (parameter->name == name) return *parameter;
  }
  throw std::out_of_range(name);
}

void Nudge(models::Model& model, const std::string& name, float by) {
  Tensor changed = Find(model, name).tensor().Clone();
  for (float& value : changed.MutableValues<float>()) value += by * value;
  Find(model, name).value = changed;
}

// All logits of a window at once.
std::vector<float> WholeLogits(const Subject& subject, const std::vector<int32_t>& tokens) {
  ops::TestBench bench;
  bench.context.interceptor = subject.provider;
  const auto length = static_cast<int64_t>(tokens.size());
  const ops::Rows rows = ops::RowsOfShape(1, length);
  const ops::Var hidden = models::Forward(bench.context, *subject.model, ops::IntTensor({1, length}, tokens), rows);
  return subject.model->Logits(bench.context, hidden).value.ToVector<float>();
}

TEST(TextLoss, IsTheLossOfTheTrainer) {
  const auto model = TinyModel(1);
  const std::vector<int32_t> tokens = RandomTokens(81);
  ThreadPool pool(2);
  const TextLoss found = EvaluateText({.model = model.get()}, Windows(tokens, {.length = 40}), pool);
  EXPECT_EQ(found.loss.count(), 80);
  EXPECT_EQ(found.windows, 2);
  const std::vector<int32_t> seen(tokens.begin(), tokens.end() - 1), next(tokens.begin() + 1, tokens.end());
  ops::TestBench bench;
  models::LossParts parts;
  models::Loss(bench.context, *model, ops::IntTensor({2, 40}, seen), ops::IntTensor({2, 40}, next),
               ops::IntTensor({2, 40}, std::vector<int32_t>(80, 1)), ops::RowsOfShape(2, 40), {.total_weights = 80},
               &parts);
  EXPECT_NEAR(found.loss.mean(), parts.xent_sum / 80, 1e-6);
  EXPECT_GT(found.loss.standard_error(), 0);
  EXPECT_DOUBLE_EQ(found.perplexity(), std::exp(found.loss.mean()));
}

TEST(TextLoss, SameBitsForAnyThreads) {
  const auto model = TinyModel(1);
  const std::vector<int32_t> tokens = RandomTokens(101);
  std::vector<double> means, errors;
  for (const int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    const TextLoss found = EvaluateText({.model = model.get()}, Windows(tokens, {.length = 50}), pool);
    means.push_back(found.loss.mean());
    errors.push_back(found.loss.standard_error());
  }
  EXPECT_EQ(means, std::vector<double>(4, means[0]));
  EXPECT_EQ(errors, std::vector<double>(4, errors[0]));
}

TEST(TextLoss, NoNumbersAndForeignTokensAreErrors) {
  const auto model = TinyModel(1);
  ThreadPool pool(1);
  std::vector<int32_t> tokens = RandomTokens(30);
  tokens.back() = 61;  // a target only
  EXPECT_THROW(EvaluateText({.model = model.get()}, Windows(tokens, {.length = 29}), pool), Error);
  Nudge(*model, "decoder/logits_dense/kernel", std::numeric_limits<float>::infinity());
  try {
    EvaluateText({.model = model.get()}, Windows(RandomTokens(30), {.length = 29}), pool);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNumbers);
  }
}

TEST(Compare, AModelWithItself) {
  const auto model = TinyModel(1);
  ThreadPool pool(2);
  const Subject subject{.model = model.get()};
  const Comparison found = Compare(subject, subject, Windows(RandomTokens(61), {.length = 30}), pool);
  EXPECT_TRUE(found.equal);
  EXPECT_EQ(found.bits_a, found.bits_b);
  EXPECT_EQ(found.kl.mean(), 0);
  EXPECT_EQ(found.same_top, 60);
  EXPECT_EQ(found.deltas, std::vector<double>(60, 0));
  EXPECT_EQ(found.sites.size(), 2u * 7 + 1);  // seven projections a layer, and the head
  for (const SiteError& site : found.sites) EXPECT_TRUE(std::isinf(site.Sqnr())) << site.site;
}

TEST(Compare, NumbersAreThoseOfWholeLogits) {
  const auto a = TinyModel(1), b = TinyModel(1);
  Nudge(*b, "decoder/layers_1/mlp/wo/kernel", 0.2f);
  const std::vector<int32_t> tokens = RandomTokens(41);
  const std::vector<int32_t> seen(tokens.begin(), tokens.end() - 1);
  const std::vector<float> x = WholeLogits({.model = a.get()}, seen), y = WholeLogits({.model = b.get()}, seen);
  Mean kl;
  int64_t same = 0;
  std::vector<double> deltas;
  for (size_t i = 0; i < 40; ++i) {
    const RowDivergence row =
        Diverge(std::span(x).subspan(i * 61, 61), std::span(y).subspan(i * 61, 61), tokens[i + 1]);
    kl.Add(row.kl);
    same += row.same_top ? 1 : 0;
    deltas.push_back(row.delta_p);
  }
  std::sort(deltas.begin(), deltas.end());
  for (const int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    const Comparison found = Compare({.model = a.get()}, {.model = b.get()}, Windows(tokens, {.length = 40}), pool);
    EXPECT_FALSE(found.equal);
    EXPECT_EQ(found.kl.mean(), kl.mean());
    EXPECT_EQ(found.kl.standard_error(), kl.standard_error());
    EXPECT_EQ(found.same_top, same);
    EXPECT_EQ(found.deltas, deltas);
    EXPECT_EQ(found.bits_a, DigestHex(std::as_bytes(std::span(x))));
    EXPECT_EQ(found.bits_b, DigestHex(std::as_bytes(std::span(y))));
    EXPECT_GT(kl.mean(), 0);
    // The weight is 1.2 times what it was, so is the output: noise is 1 / 25 of the signal.
    EXPECT_EQ(found.sites[0].site, "decoder/layers_1/mlp/wo");
    EXPECT_NEAR(found.sites[0].Sqnr(), 10 * std::log10(25.0), 1e-3);
    EXPECT_EQ(found.sites[1].site, "decoder/logits_dense");
    for (size_t i = 2; i < found.sites.size(); ++i) EXPECT_TRUE(std::isinf(found.sites[i].Sqnr()));
  }
}

TEST(Compare, OtherShapesAreNotTheSameModel) {
  const auto a = TinyModel(1);
  models::ModelConfig wide = models::TinyLlama();
  wide.mlp_dim = 48;
  const auto b = TinyModel(1, wide);
  ThreadPool pool(1);
  const auto text = [&](models::Model& first, models::Model& second) -> std::string {
    try {
      Compare({.model = &first}, {.model = &second}, Windows(RandomTokens(11), {.length = 10}), pool);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCheck);
      return error.message();
    }
    return "";
  };
  EXPECT_EQ(text(*a, *b), "decoder/layers_0/mlp/wi_0: A [24, 40], B [24, 48]: not the same model");
  models::ModelConfig deep = models::TinyLlama();
  deep.num_decoder_layers = 3;
  const auto c = TinyModel(1, deep);
  EXPECT_EQ(text(*c, *a).substr(0, 16), "decoder/layers_2");
  EXPECT_NE(text(*a, *c).find("only B has it"), std::string::npos);
}

struct Quantized {
  Quantized(models::Model& model, const quant::Recipe& recipe)
      : plan(quant::MakePlan(
            [&](ops::Context& context) {
              const Tensor tokens = Tensor::Meta({1, 40}, DType::kI32);
              models::Loss(context, model, tokens, tokens, tokens, ops::RowsOfShape(1, 40), {}, nullptr);
            },
            quant::RuleSet(quant::RulesOf(recipe, {})))),
        provider(plan),
        subject{.model = &model, .provider = &provider, .coupled_head = HasCoupledHead(plan)} {}
  quant::Plan plan;
  quant::Provider provider;
  Subject subject;
};

TEST(Compare, QuantizedAgainstFloat) {
  const auto model = TinyModel(1);
  Quantized int8(*model, quant::FindRecipe("int8", true)), int4(*model, quant::FindRecipe("int4", true));
  ThreadPool pool(2);
  const std::vector<int32_t> tokens = RandomTokens(81);
  const Windows windows(tokens, {.length = 40});
  const Comparison eight = Compare({.model = model.get()}, int8.subject, windows, pool);
  const Comparison four = Compare({.model = model.get()}, int4.subject, windows, pool);
  EXPECT_FALSE(eight.equal);
  EXPECT_GT(eight.kl.mean(), 0);
  EXPECT_LT(eight.kl.mean(), 1e-3);
  EXPECT_GT(four.kl.mean(), 10 * eight.kl.mean());
  EXPECT_GT(eight.sites[0].Sqnr(), 25);
  EXPECT_LT(four.sites[0].Sqnr(), 25);
  // Looking at the sites changes nothing.
  const Comparison blind = Compare({.model = model.get()}, int8.subject, windows, pool, {.sites = false, .done = {}});
  EXPECT_EQ(blind.bits_b, eight.bits_b);
  EXPECT_TRUE(blind.sites.empty());
}

// Rows of the head share a scale under a per-tensor recipe: the logits must be those of the whole window.
TEST(Compare, ACoupledHeadSeesWholeWindows) {
  const auto model = TinyModel(1);
  const std::vector<int32_t> tokens = RandomTokens(41);
  const std::vector<int32_t> seen(tokens.begin(), tokens.end() - 1);
  ThreadPool pool(2);
  for (const bool coupled : {false, true}) {
    Quantized quantized(
        *model, quant::ReadRecipe(fmt::format("rules:\n- {{module_path: 'decoder/.*', op_names: [dot_general], "
                                              "weight_qtype: int8, act_qtype: int8, disable_channelwise_axes: {}}}\n",
                                              coupled),
                                  "test"));
    EXPECT_EQ(quantized.subject.coupled_head, coupled);
    const std::vector<float> whole = WholeLogits(quantized.subject, seen);
    const std::string wanted = DigestHex(std::as_bytes(std::span(whole)));
    const Windows windows(tokens, {.length = 40});
    EXPECT_EQ(Compare(quantized.subject, quantized.subject, windows, pool).bits_a, wanted);
    Subject blind = quantized.subject;
    blind.coupled_head = false;  // cut into rows, the scale is another one
    EXPECT_EQ(Compare(blind, blind, windows, pool).bits_a == wanted, !coupled);
  }
}

}  // namespace
}  // namespace octavo::eval
