#include "octavo/kernels/cross_entropy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/kernels/numeric_gradient.h"
#include "octavo/kernels/sample_rows.h"

namespace octavo::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

struct Case {
  SampleRows logits, grad;
  std::vector<int32_t> target;
  std::vector<float> grad_loss, loss, z_part, log_sum;
  std::vector<LossRow> row;
  float z_loss = 0;

  Case(DType dtype, int64_t rows, int64_t vocab, float scale = 8)
      : logits(SampleRows::Random(dtype, rows, vocab, 1, scale)),
        grad(dtype, rows, vocab),
        grad_loss(SampleFloats(rows, 2)),
        loss(rows),
        z_part(rows),
        log_sum(rows),
        row(rows) {
    for (int64_t r = 0; r < rows; ++r) target.push_back(static_cast<int32_t>(SampleBits(3, r) % vocab));
  }

  // `cut`: where the vocabulary is cut.
  void Run(ThreadPool& pool, Isa isa, std::vector<int64_t> cut = {}) {
    const int64_t vocab = logits.cols(), rows = logits.rows();
    cut.insert(cut.begin(), 0);
    cut.push_back(vocab);
    row.assign(rows, {});
    const auto piece = [&](size_t i) {
      return LossPiece{PartOf(logits.view(), {0, rows, cut[i], cut[i + 1]}), cut[i], vocab, target.data()};
    };
    for (size_t i = 0; i + 1 < cut.size(); ++i) AddLossPiece(pool, isa, piece(i), row.data());
    FinishLoss({rows, vocab, row.data(), target.data(), z_loss, loss.data(), z_part.data(), log_sum.data()});
    for (size_t i = 0; i + 1 < cut.size(); ++i) {
      LossGrad(pool, isa,
               {piece(i), row.data(), z_loss, grad_loss.data(), PartOf(grad.mut(), {0, rows, cut[i], cut[i + 1]})});
    }
  }
  std::vector<uint64_t> Hashes() const { return {HashOf(loss), HashOf(z_part), HashOf(log_sum), HashOf(grad)}; }
};

TEST(CrossEntropy, FastEqualsReferenceForEverySize) {
  ThreadPool pool(1);
  std::vector<int64_t> sizes = {127, 128, 129, 1000, 1024, 1025, 4097};
  for (int64_t n = 1; n <= 70; ++n) sizes.push_back(n);
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    for (int64_t vocab : sizes) {
      Case reference(dtype, 3, vocab), fast(dtype, 3, vocab);
      reference.z_loss = fast.z_loss = vocab % 2 == 0 ? 1e-3f : 0;
      reference.target[1] = fast.target[1] = -1;
      reference.Run(pool, Isa::kReference);
      fast.Run(pool, ChooseIsa().isa);
      ASSERT_EQ(reference.Hashes(), fast.Hashes()) << vocab;
    }
  }
}

TEST(CrossEntropy, PiecesOfTheVocabularyNeverChangeABit) {
  ThreadPool pool(2);
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    Case whole(dtype, 5, 5000);
    whole.z_loss = 1e-4f;
    whole.Run(pool, ChooseIsa().isa);
    for (const std::vector<int64_t>& cut : {std::vector<int64_t>{1024}, {2048, 4096}, {1024, 2048, 3072, 4096}}) {
      Case pieces(dtype, 5, 5000);
      pieces.z_loss = 1e-4f;
      pieces.Run(pool, ChooseIsa().isa, cut);
      EXPECT_EQ(pieces.Hashes(), whole.Hashes());
    }
  }
}

TEST(CrossEntropy, ThreadsRowsAndInPlaceNeverChangeABit) {
  ThreadPool one(1);
  Case alone(DType::kF32, 61, 1200);
  alone.Run(one, ChooseIsa().isa);
  for (int threads : {2, 3, 7}) {
    ThreadPool pool(threads);
    Case many(DType::kF32, 61, 1200);
    many.Run(pool, ChooseIsa().isa);
    EXPECT_EQ(many.Hashes(), alone.Hashes());
    LossGrad(pool, ChooseIsa().isa,
             {{many.logits.view(), 0, 1200, many.target.data()},
              many.row.data(),
              0,
              many.grad_loss.data(),
              many.logits.mut()});
    EXPECT_EQ(many.logits, alone.grad);
  }
}

double Oracle(const std::vector<double>& logits, int32_t target, double z_loss) {
  double max = logits[0], sum = 0;
  for (double v : logits) max = std::max(max, v);
  for (double v : logits) sum += std::exp(v - max);
  const double log_sum = max + std::log(sum);
  return log_sum - logits[target] + z_loss * log_sum * log_sum;
}

TEST(CrossEntropy, MatchesTheOracleAndItsFiniteDifferences) {
  ThreadPool pool(1);
  for (float z_loss : {0.0f, 1e-2f}) {
    Case one(DType::kF32, 3, 50);
    one.z_loss = z_loss;
    one.Run(pool, ChooseIsa().isa);
    for (int64_t r = 0; r < 3; ++r) {
      std::vector<double> logits(50);
      for (int64_t c = 0; c < 50; ++c) logits[c] = one.logits.Get(r, c);
      EXPECT_NEAR(one.loss[r], Oracle(logits, one.target[r], z_loss), 2e-6);
      const auto gradient =
          NumericGradient(logits, [&](const std::vector<double>& at) { return Oracle(at, one.target[r], z_loss); });
      for (int64_t c = 0; c < 50; ++c) ASSERT_NEAR(one.grad.Get(r, c), one.grad_loss[r] * gradient[c], 1e-6);
    }
  }
}

TEST(CrossEntropy, LargeVocabularyStaysAccurate) {
  ThreadPool pool(1);
  Case one(DType::kF32, 2, 130000, 12);
  one.Run(pool, ChooseIsa().isa);
  for (int64_t r = 0; r < 2; ++r) {
    std::vector<double> logits(130000);
    for (int64_t c = 0; c < 130000; ++c) logits[c] = one.logits.Get(r, c);
    EXPECT_NEAR(one.loss[r], Oracle(logits, one.target[r], 0), 2e-6);
    double sum = 0;
    for (int64_t c = 0; c < 130000; ++c) sum += one.grad.Get(r, c);
    EXPECT_NEAR(sum, 0, 1e-6);  // probabilities add up to the one that was subtracted
  }
}

TEST(CrossEntropy, IgnoredRowsAndMaskedVocabulary) {
  ThreadPool pool(1);
  for (Isa isa : AvailableIsas()) {
    Case one(DType::kF32, 6, 30);
    one.z_loss = 0.1f;
    for (int64_t c = 0; c < 30; ++c) {
      one.logits.Set(0, c, std::nanf(""));               // ignored: NaN must not leak
      one.logits.Set(1, c, -kInf);                       // everything masked
      one.logits.Set(2, c, c == 7 ? 3.0f : -kInf);       // only the target is left
      one.logits.Set(3, c, c == 7 ? -kInf : 0.0f);       // the target is masked
      one.logits.Set(4, c, c == 9 ? std::nanf("") : 0);  // a NaN shows
      one.logits.Set(5, c, c == 7 ? 1e38f : -1e38f);     // huge
    }
    one.target = {-1, 7, 7, 7, 7, 7};
    one.grad_loss.assign(6, 1.0f);
    one.Run(pool, isa);
    EXPECT_EQ(one.loss[0], 0);
    EXPECT_EQ(one.z_part[0], 0);
    EXPECT_EQ(one.loss[1], kInf);
    EXPECT_EQ(one.loss[2], 0.1f * 9);
    EXPECT_EQ(one.loss[3], kInf);
    EXPECT_TRUE(std::isnan(one.loss[4]));
    EXPECT_EQ(one.z_part[5], kInf);  // the square of 1e38
    for (int64_t c = 0; c < 30; ++c) {
      EXPECT_EQ(one.grad.Get(0, c), 0);
      EXPECT_EQ(one.grad.Get(1, c), c == 7 ? -1 : 0);
      EXPECT_EQ(one.grad.Get(2, c), c == 7 ? 2 * 0.1f * 3 : 0);
      EXPECT_TRUE(std::isnan(one.grad.Get(4, c)));
    }
    EXPECT_NEAR(one.grad.Get(3, 7), -1, 1e-6);
    one.z_loss = 0;
    one.Run(pool, isa);
    EXPECT_EQ(one.loss[5], 0);
    EXPECT_EQ(one.grad.Get(5, 7), 0);
  }
}

TEST(CrossEntropy, RefusesWhatDoesNotFit) {
  ThreadPool pool(1);
  Case one(DType::kF32, 2, 1500);
  std::vector<LossRow> rows(2);
  const auto add = [&](int64_t begin, int64_t end) {
    AddLossPiece(pool, ChooseIsa().isa, {PartOf(one.logits.view(), {0, 2, begin, end}), begin, 1500, one.target.data()},
                 rows.data());
  };
  EXPECT_THROW(add(0, 1000), Error);     // not a whole tile
  EXPECT_THROW(add(1024, 1500), Error);  // not ascending
  EXPECT_THROW(FinishLoss({2, 1500, rows.data(), one.target.data(), 0, one.loss.data()}), Error);
  EXPECT_THROW(
      LossGrad(pool, ChooseIsa().isa,
               {{one.logits.view(), 0, 1500, one.target.data()}, rows.data(), 0, one.grad_loss.data(), one.grad.mut()}),
      Error);
  add(0, 1024);
  EXPECT_THROW(add(0, 1024), Error);
  add(1024, 1500);
  FinishLoss({2, 1500, rows.data(), one.target.data(), 0, one.loss.data()});
  one.target[1] = 1500;
  rows.assign(2, {});
  EXPECT_THROW(add(0, 1024), Error);
  FinishLoss({0, 1500, nullptr, nullptr, 0, nullptr});
}

}  // namespace
}  // namespace octavo::kernels
