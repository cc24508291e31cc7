#include "octavo/train/start_block.h"

#include <gtest/gtest.h>

namespace octavo::train {
namespace {

constexpr double kGiB = 1 << 30;

TEST(FindMemoryProblem, AnErrorOnlyWhenTheMachineDoesNotHaveIt) {
  const MemoryEstimate memory{.parameters = 1 * kGiB, .moments = 2 * kGiB, .gradients = 1 * kGiB};
  TrainOptions options;
  options.shards = 1;
  EXPECT_FALSE(FindMemoryProblem(memory, options, 5 * kGiB, 8 * kGiB));
  EXPECT_FALSE(FindMemoryProblem(memory, options, 0, 0));
  const std::optional<MemoryProblem> tight = FindMemoryProblem(memory, options, 3 * kGiB, 8 * kGiB);
  ASSERT_TRUE(tight);
  EXPECT_FALSE(tight->cannot_fit);
  EXPECT_EQ(tight->text, "the run needs about 4.00 GiB, and 3.00 GiB are available");
  const std::optional<MemoryProblem> hopeless = FindMemoryProblem(memory, options, 1 * kGiB, 2 * kGiB);
  ASSERT_TRUE(hopeless);
  EXPECT_TRUE(hopeless->cannot_fit);
  EXPECT_EQ(hopeless->text, "the run needs about 4.00 GiB, and this machine has 2.00 GiB");
  EXPECT_EQ(hopeless->fix, "try a smaller model");
}

TEST(FindMemoryProblem, TheFixIsForWhatTakesMost) {
  const auto fix = [](const MemoryEstimate& memory, const TrainOptions& options) {
    return FindMemoryProblem(memory, options, 1, 1)->fix;
  };
  TrainOptions options;
  options.shards = 4;
  options.remat.everything = true;
  EXPECT_EQ(fix({.parameters = 1, .activations = 9 * kGiB}, options),
            "try remat_policy=full, a smaller per_device_batch_size or max_target_length");
  options.remat.everything = false;
  EXPECT_EQ(fix({.activations = 9 * kGiB}, options), "try a smaller per_device_batch_size or max_target_length");
  EXPECT_EQ(fix({.logits = 9 * kGiB}, options),
            "try a smaller per_device_batch_size or max_target_length, num_vocab_tiling=8");
  EXPECT_EQ(fix({.parameters = 1 * kGiB, .moments = 2 * kGiB, .gradients = 3 * kGiB}, options),
            "try gradient_shards=1, a smaller model");
}

}  // namespace
}  // namespace octavo::train
