#include "octavo/kernels/workspace.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <utility>

namespace octavo::kernels {
namespace {

TEST(Buffer, IsAlignedAndTakesHardlyMoreThanAsked) {
  for (const size_t bytes : {size_t{1}, size_t{64}, size_t{1000}, (size_t{1} << 20) - 1, size_t{1} << 20,
                             (size_t{3} << 20) + 5, (size_t{8} << 20) + 4097}) {
    const Buffer buffer(bytes);
    ASSERT_NE(buffer.data(), nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u);
    EXPECT_GE(buffer.bytes(), bytes);
    EXPECT_LT(buffer.bytes(), bytes + (bytes < (size_t{1} << 20) ? 64 : 4096)) << bytes;
    std::memset(buffer.data(), 1, buffer.bytes());
  }
  EXPECT_EQ(Buffer(0).data(), nullptr);
}

TEST(Workspace, KeepsTheMemoryOfASlotUntilItIsAskedForMore) {
  Workspace workspace;
  float* const first = workspace.Get<float>(2, 100);
  first[99] = 7;
  EXPECT_EQ(workspace.Get<float>(2, 50), first);
  EXPECT_EQ(first[99], 7);
  auto* const other = workspace.Get<uint8_t>(0, 3 << 20);
  other[(3 << 20) - 1] = 1;
  EXPECT_EQ(workspace.Get<float>(2, 100), first);
  EXPECT_LT(workspace.bytes(), size_t{3 << 20} + 4096 + 512);
  workspace.Release();
  EXPECT_EQ(workspace.bytes(), 0u);
}

}  // namespace
}  // namespace octavo::kernels
