#include "octavo/optim/gradient_tree.h"

#include <gtest/gtest.h>

#include <mutex>

#include "octavo/base/rng.h"
#include "octavo/dist/thread_ranks.h"

namespace octavo::optim {
namespace {

constexpr int64_t kSizes[] = {1, 7, 5000};

// Values of very different sizes: another order of additions gives other bits. Shard 1 has no gradient of parameter 1.
Gradients ShardGradients(int64_t shard) {
  Gradients gradients;
  for (int p = 0; p < 3; ++p) {
    if (p == 1 && shard == 1) {
      gradients.emplace_back();
      continue;
    }
    Tensor values = Tensor::Empty({kSizes[p]}, DType::kF32);
    const RngKey key = RngKey::FromSeed(static_cast<uint64_t>(shard * 10 + p));
    for (int64_t i = 0; i < kSizes[p]; ++i) {
      values.MutableData<float>()[i] = Normal(key, static_cast<uint64_t>(i)) * (shard % 3 == 0 ? 1000.0f : 0.001f);
    }
    gradients.push_back(std::move(values));
  }
  return gradients;
}

Gradients SumOnRanks(int64_t shards, int ranks) {
  Gradients result;
  std::mutex mutex;
  RunThreadRanks(ranks, [&](Communicator& communicator) {
    ThreadPool pool(1);
    GradientTree tree(pool, kernels::ChooseIsa().isa, shards);
    const int64_t run = shards / ranks;
    for (int64_t s = 0; s < run; ++s) {
      const int64_t shard = communicator.rank() * run + s;
      tree.Add(shard, ShardGradients(shard));
    }
    Gradients sum = tree.Finish(communicator);
    const std::lock_guard lock(mutex);
    if (result.empty()) {
      result = sum;
      return;
    }
    for (size_t p = 0; p < sum.size(); ++p) EXPECT_TRUE(BitEqual(result[p], sum[p]));  // all ranks agree
  });
  return result;
}

TEST(GradientTree, FourShardsAreATree) {
  const Gradients sum = SumOnRanks(4, 1);
  const Gradients g0 = ShardGradients(0), g1 = ShardGradients(1), g2 = ShardGradients(2), g3 = ShardGradients(3);
  int64_t chain_differs = 0;
  for (int64_t i = 0; i < kSizes[2]; ++i) {
    const float a = g0[2].Data<float>()[i], b = g1[2].Data<float>()[i], c = g2[2].Data<float>()[i],
                d = g3[2].Data<float>()[i];
    EXPECT_EQ(sum[2].Data<float>()[i], (a + b) + (c + d));
    chain_differs += sum[2].Data<float>()[i] != ((a + b) + c) + d;
  }
  EXPECT_GT(chain_differs, 100);  // the test would notice a chain
  for (int64_t i = 0; i < kSizes[1]; ++i) {
    EXPECT_EQ(sum[1].Data<float>()[i], g0[1].Data<float>()[i] + (g2[1].Data<float>()[i] + g3[1].Data<float>()[i]));
  }
}

TEST(GradientTree, RanksDoNotChangeBits) {
  for (const auto& [shards, ranks] : std::vector<std::pair<int64_t, int>>{
           {2, 2}, {4, 2}, {4, 4}, {8, 2}, {8, 4}, {6, 2}, {6, 3}, {12, 4}, {10, 2}, {3, 3}}) {
    const Gradients one = SumOnRanks(shards, 1), several = SumOnRanks(shards, ranks);
    for (size_t p = 0; p < one.size(); ++p) {
      EXPECT_TRUE(BitEqual(one[p], several[p])) << shards << " shards, " << ranks << " ranks, parameter " << p;
    }
  }
}

TEST(GradientTree, PiecesInAnyOrderGiveTheSameBits) {
  ThreadPool pool(1);
  SelfCommunicator self;
  for (const int64_t shards : {1, 2, 4, 6, 8}) {
    GradientTree tree(pool, kernels::ChooseIsa().isa, shards);
    for (int64_t shard = 0; shard < shards; ++shard) {
      Gradients gradients = ShardGradients(shard);
      tree.Begin(shard, gradients.size());
      for (size_t i = gradients.size(); i-- > 0;) {
        if (!gradients[i].defined()) continue;
        tree.Give(i, std::move(gradients[i]));
        // Six shards are two trees until Finish joins them.
        EXPECT_EQ(tree.Complete(i).defined(), shard == shards - 1 && shards != 6) << shards << " shards, " << shard;
      }
      tree.End();
    }
    const Gradients sum = tree.Finish(self), whole = SumOnRanks(shards, 1);
    for (size_t p = 0; p < sum.size(); ++p) EXPECT_TRUE(BitEqual(sum[p], whole[p])) << shards << " shards, " << p;
  }
}

// The norm that is taken while the last shard joins is that of the finished sum.
TEST(GradientTree, SquaresAreTakenOnTheWay) {
  ThreadPool pool(2);
  SelfCommunicator self;
  const std::vector<std::string> names = {"c", "a", "b"};
  for (const int64_t shards : {2, 4, 8}) {
    GradientTree tree(pool, kernels::ChooseIsa().isa, shards);
    NormOfParts norm(names);
    for (int64_t shard = 0; shard < shards; ++shard) {
      Gradients gradients = ShardGradients(shard);
      tree.Begin(shard, gradients.size());
      for (size_t i = 0; i < gradients.size(); ++i) {
        if (!gradients[i].defined()) continue;
        EXPECT_FALSE(norm.Has(i)) << "before the last shard";
        tree.Give(i, std::move(gradients[i]), &norm);
      }
      tree.End();
    }
    const Gradients sum = tree.Finish(self);
    EXPECT_TRUE(norm.Has(0) && norm.Has(2));
    EXPECT_EQ(norm.Has(1), shards > 2);  // shard 1 has no gradient of it
    if (!norm.Has(1)) norm.Take(pool, kernels::ChooseIsa().isa, 1, sum[1]);
    EXPECT_EQ(norm.Norm(), GlobalNorm(pool, kernels::Isa::kReference, names, sum)) << shards;
  }
}

TEST(GradientTree, SharedStorageIsNotSummedTwice) {
  ThreadPool pool(1);
  SelfCommunicator self;
  GradientTree tree(pool, kernels::Isa::kReference, 2);
  const Tensor shared = Tensor::FromValues<float>({2}, DType::kF32, std::vector<float>{1, 2});
  tree.Add(0, {shared, shared});
  tree.Add(1, {Tensor::FromValues<float>({2}, DType::kF32, std::vector<float>{10, 20}),
               Tensor::FromValues<float>({2}, DType::kF32, std::vector<float>{100, 200})});
  const Gradients sum = tree.Finish(self);
  EXPECT_EQ(sum[0].ToVector<float>(), (std::vector<float>{11, 22}));
  EXPECT_EQ(sum[1].ToVector<float>(), (std::vector<float>{101, 202}));
}

}  // namespace
}  // namespace octavo::optim
