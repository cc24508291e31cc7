#include "octavo/data/synthetic.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "octavo/base/rng.h"
#include "octavo/data/data_test_support.h"
#include "octavo/data/unigram.h"

namespace octavo::data {
namespace {

TEST(Synthetic, IsTheReferencesBlockInEveryStep) {
  const Settings settings = SettingsOf({"dataset_type=synthetic"});
  const auto source = OpenTrainData(settings, {2, 7, 1000});
  const Batch batch = source->Next();
  // jax.random.randint(PRNGKey(0), (2, 8), 0, 1000), whose values the tests of base/rng hold.
  for (int64_t row = 0; row < 2; ++row) {
    for (int64_t t = 0; t < 7; ++t) {
      const auto at = static_cast<uint64_t>(row * 8 + t);
      EXPECT_EQ(batch.inputs.At<int32_t>({row, t}), RandomInteger(RngKey::FromSeed(0), at, 16, 0, 1000));
      EXPECT_EQ(batch.targets.At<int32_t>({row, t}), RandomInteger(RngKey::FromSeed(0), at + 1, 16, 0, 1000));
      EXPECT_EQ(batch.inputs_position.At<int32_t>({row, t}), t);
      EXPECT_EQ(batch.targets_position.At<int32_t>({row, t}), t + 1);
      EXPECT_EQ(batch.inputs_segmentation.At<int32_t>({row, t}), 1);
    }
  }
  EXPECT_TRUE(SameBatch(source->Next(), batch));
  const auto again = OpenTrainData(settings, {2, 7, 1000});
  again->Restore(source->State());
  EXPECT_EQ(again->State(), source->State());
  EXPECT_TRUE(SameBatch(again->Next(), batch));
  EXPECT_NE(ErrorText(2, [&] { again->Restore("{\"source\":\"files\"}"); }), "no error");
  EXPECT_EQ(source->Describe(), "synthetic, one block of 2 x 8 random tokens below 1000");
}

TEST(Synthetic, SegmentsWhenAsked) {
  const auto source = OpenTrainData(SettingsOf({"dataset_type=synthetic", "max_segments_per_seq=4"}), {50, 32, 10});
  const Batch batch = source->Next();
  int32_t least = 99, most = 0;
  for (int64_t row = 0; row < 50; ++row) {
    int32_t last = 1;
    for (int64_t t = 0; t < 32; ++t) {
      const int32_t segment = batch.inputs_segmentation.At<int32_t>({row, t});
      EXPECT_TRUE(segment == last || segment == last + 1);
      last = segment;
    }
    EXPECT_EQ(batch.inputs_segmentation.At<int32_t>({row, 0}), 1);
    least = std::min(least, last);
    most = std::max(most, last);
  }
  EXPECT_EQ(least, 2);
  EXPECT_EQ(most, 4);
}

TEST(Synthetic, EvaluationIsOneBatch) {
  const auto source = OpenEvalData(SettingsOf({"dataset_type=synthetic"}), {2, 7, 1000});
  const std::string start = source->State();
  source->Next();
  EXPECT_TRUE(source->Done());
  source->Restore(start);
  EXPECT_FALSE(source->Done());
}

TEST(ReuseExampleBatch, GivesTheFirstBatchAgain) {
  DataFolder folder;
  const std::string file = folder.Write("a.txt", "abc\n\ndef\n\nghi");
  const Settings settings = SettingsOf({"data_files=" + file, "tokenizer_path=bytes", "reuse_example_batch=1"});
  const auto source = OpenTrainData(settings, {1, 3, 258});
  const Batch first = source->Next();
  EXPECT_TRUE(SameBatch(source->Next(), first));
}

TEST(Unigram, IsTheCrossEntropyOfCounts) {
  DataFolder folder;
  const std::string train = folder.Write("a.txt", "aaab"), held_out = folder.Write("b.txt", "abz");
  const Settings settings = SettingsOf(
      {"data_files=" + train, "eval_data_files=" + held_out, "tokenizer_path=bytes", "add_bos=false", "add_eos=false"});
  const UnigramEntropy entropy = MeasureUnigram(settings, {1, 4, 258});
  EXPECT_EQ(entropy.train_tokens, 3);  // a a b
  EXPECT_EQ(entropy.eval_tokens, 2);   // b z
  EXPECT_DOUBLE_EQ(entropy.nats, -(std::log(2.0 / 261) + std::log(1.0 / 261)) / 2);
  EXPECT_EQ(ErrorText(2,
                      [&] {
                        MeasureUnigram(SettingsOf({"data_files=" + train, "tokenizer_path=bytes"}), {1, 4, 258});
                      }),
            "there is no held-out data to measure on\ngive eval_data_files=FILE or eval_fraction=0.05");
}

}  // namespace
}  // namespace octavo::data
