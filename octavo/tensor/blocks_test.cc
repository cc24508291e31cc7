#include "octavo/tensor/blocks.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "octavo/tensor/tensor.h"

namespace octavo {
namespace {

TEST(TensorBlocks, GivesTheBlockThatWasFreedLastToTheSameSizes) {
  TensorBlocks blocks;
  std::byte *first = blocks.Take(8192), *second = blocks.Take(8192);
  blocks.Give(first, 8192);
  blocks.Give(second, 8192);
  EXPECT_EQ(blocks.held(), 16384);
  EXPECT_EQ(blocks.Take(7169), second);  // the smallest that shares its size
  EXPECT_EQ(blocks.Take(8192), first);
  EXPECT_EQ(blocks.held(), 0);
  blocks.Give(first, 8192);
  std::byte* larger = blocks.Take(8193);
  EXPECT_NE(larger, first);
  EXPECT_EQ(blocks.held(), 8192);
  blocks.Give(second, 7169);
  blocks.Give(larger, 8193);
  EXPECT_EQ(blocks.held(), 16384 + 10240);
}

// Every size up to the largest and some above: whole, aligned, apart from the others.
TEST(TensorBlocks, BlocksOfAllSizesAreWhole) {
  TensorBlocks blocks;
  struct Block {
    std::byte* data;
    int64_t bytes;
    int mark;
  };
  std::vector<Block> taken;
  std::mt19937 random(5);
  const auto give = [&](const Block& block) {
    EXPECT_EQ(block.data[0], static_cast<std::byte>(block.mark));
    EXPECT_EQ(block.data[block.bytes - 1], static_cast<std::byte>(block.mark));
    blocks.Give(block.data, block.bytes);
  };
  for (int64_t bytes = 1; bytes <= TensorBlocks::kLargest + 4096; bytes += bytes < 2048 ? 1 : 61) {
    std::byte* data = blocks.Take(bytes);
    ASSERT_NE(data, nullptr);
    ASSERT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0u) << bytes;
    taken.push_back({data, bytes, static_cast<int>(random() % 256)});
    std::memset(data, taken.back().mark, static_cast<size_t>(bytes));
    if (taken.size() > 40) {
      std::swap(taken[random() % taken.size()], taken.back());
      give(taken.back());
      taken.pop_back();
    }
  }
  for (const Block& block : taken) give(block);
}

TEST(TensorBlocks, KeepsNoMoreThanItMay) {
  TensorBlocks blocks;
  std::vector<std::byte*> taken;
  for (int i = 0; i < 200; ++i) taken.push_back(blocks.Take(TensorBlocks::kLargest));
  for (std::byte* block : taken) blocks.Give(block, TensorBlocks::kLargest);
  EXPECT_LE(blocks.held(), TensorBlocks::kHeld);
  EXPECT_GT(blocks.held(), TensorBlocks::kHeld - 2 * TensorBlocks::kLargest);
}

Tensor Filled(int64_t count, float value) {
  return Tensor::FromValues<float>({count}, DType::kF32, std::vector<float>(static_cast<size_t>(count), value));
}

// Tensors made by one thread and dropped by another; handles that outlive each other; the data survives all of it.
TEST(TensorBlocks, TensorsCrossThreads) {
  constexpr int kRounds = 2000;
  std::vector<Tensor> passed(kRounds);
  for (int i = 0; i < kRounds; ++i) passed[static_cast<size_t>(i)] = Filled(1 + i % 700, static_cast<float>(i));
  std::thread other([own = passed] {
    for (int i = 0; i < kRounds; ++i) {
      const Tensor part = own[static_cast<size_t>(i)].Slice(0, i % 700, i % 700 + 1);
      EXPECT_EQ(part.Data<float>()[0], static_cast<float>(i));
    }
  });
  for (int i = 0; i < kRounds; ++i) {
    const Tensor scratch = Tensor::Zeros({1 + i % 300}, DType::kF32);
    EXPECT_EQ(passed[static_cast<size_t>(i)].Data<float>()[0], static_cast<float>(i));
    passed[static_cast<size_t>(i)] = Tensor();
    EXPECT_EQ(scratch.Data<float>()[0], 0.0f);
  }
  other.join();
}

}  // namespace
}  // namespace octavo
