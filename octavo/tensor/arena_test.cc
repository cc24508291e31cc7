#include "octavo/tensor/arena.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "octavo/tensor/memory.h"
#include "octavo/tensor/tensor.h"

namespace octavo {
namespace {

// Random sizes come and go; nothing overlaps, and when all is freed one piece per chunk is left to use again.
TEST(TensorArena, PiecesDoNotOverlapAndJoinAgain) {
  TensorArena arena;
  std::mt19937 random(3);
  struct Piece {
    std::byte* data;
    int64_t bytes;
    unsigned char mark;
  };
  std::vector<Piece> pieces;
  for (int round = 0; round < 2000; ++round) {
    if (pieces.size() < 20 || random() % 2 == 0) {
      const int64_t bytes = TensorArena::kSmallest + static_cast<int64_t>(random() % 300000);
      std::byte* data = arena.Allocate(bytes);
      ASSERT_NE(data, nullptr);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0u);
      const auto mark = static_cast<unsigned char>(random());
      data[0] = data[bytes - 1] = static_cast<std::byte>(mark);
      pieces.push_back({data, bytes, mark});
    } else {
      std::swap(pieces[random() % pieces.size()], pieces.back());
      const Piece& last = pieces.back();
      EXPECT_EQ(last.data[0], static_cast<std::byte>(last.mark));
      EXPECT_EQ(last.data[last.bytes - 1], static_cast<std::byte>(last.mark));
      arena.Free(last.data, last.bytes);
      pieces.pop_back();
    }
  }
  for (const Piece& piece : pieces) arena.Free(piece.data, piece.bytes);
  std::byte* whole = arena.Allocate(40 << 20);  // fits the first chunk again
  std::byte* again = arena.Allocate(1 << 20);
  arena.Free(whole, 40 << 20);
  EXPECT_EQ(arena.Allocate(40 << 20), whole);
  arena.Free(whole, 40 << 20);
  arena.Free(again, 1 << 20);
}

TEST(TensorArena, HoldsNoMoreThanItsPeakAndGivesItBack) {
  TensorArena arena;
  constexpr int64_t kPiece = 8 << 20;
  for (int round = 0; round < 3; ++round) {
    std::vector<std::byte*> pieces;
    for (int i = 0; i < 20; ++i) {
      pieces.push_back(arena.Allocate(kPiece - round * 100000));
      std::memset(pieces.back(), 1, 1 << 20);
    }
    for (std::byte* piece : pieces) arena.Free(piece, kPiece - round * 100000);
    EXPECT_LE(arena.held(), 20 * kPiece * 9 / 8);
    EXPECT_GT(arena.held(), 10 * kPiece);
  }
  arena.Release();
  EXPECT_LT(arena.held(), kPiece);
  std::byte* fresh = arena.Allocate(100 << 20);
  ASSERT_NE(fresh, nullptr);
  EXPECT_EQ(fresh[50 << 20], std::byte{0});
  arena.Free(fresh, 100 << 20);
}

TEST(TensorMemory, CountsWhatTensorsHold) {
  const int64_t before = TensorBytes();
  ResetPeakTensorBytes();
  {
    const Tensor a = Tensor::Zeros({1000, 1000}, DType::kF32), b = Tensor::Zeros({10}, DType::kF32);
    EXPECT_EQ(TensorBytes() - before, 4000040);
  }
  EXPECT_EQ(TensorBytes(), before);
  EXPECT_EQ(PeakTensorBytes() - before, 4000040);
}

}  // namespace
}  // namespace octavo
