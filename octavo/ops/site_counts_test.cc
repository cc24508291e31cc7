#include "octavo/ops/site_counts.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <utility>

namespace octavo::ops {
namespace {

// Against a tree, over growth, clearing and swapping.
TEST(SiteCounts, CountsAsAMapDoes) {
  SiteCounts counts, other;
  std::map<std::pair<std::string, OpKind>, int> expected;
  std::mt19937 random(7);
  EXPECT_EQ(counts.Find("decoder/layers_0", OpKind::kEinsum), 0);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 5000; ++i) {
      const std::string path = "decoder/layers_" + std::to_string(random() % 300) + (random() % 2 == 0 ? "/mlp" : "");
      const OpKind op = random() % 2 == 0 ? OpKind::kDotGeneral : OpKind::kEinsum;
      if (random() % 4 == 0) {
        const auto at = expected.find({path, op});
        ASSERT_EQ(counts.Find(path, op), at == expected.end() ? 0 : at->second);
        ASSERT_EQ(counts.Has(path, op), at != expected.end());
      } else {
        int& known = expected[{path, op}];
        ASSERT_EQ(counts.At(path, op)++, known++);
      }
      ASSERT_EQ(counts.size(), expected.size());
    }
    counts.Swap(other);
    EXPECT_EQ(counts.size(), 0u);
    counts.Swap(other);
    EXPECT_EQ(counts.size(), expected.size());
    if (round == 1) {
      counts.Clear();
      expected.clear();
    }
  }
}

TEST(SiteCounts, PathsThatShareTheirBeginningAreApart) {
  SiteCounts counts;
  counts.At("a", OpKind::kEinsum) = 1;
  counts.At("ab", OpKind::kEinsum) = 2;
  counts.At("b", OpKind::kEinsum) = 3;
  counts.At("", OpKind::kEinsum) = 4;
  EXPECT_EQ(counts.Find("a", OpKind::kEinsum), 1);
  EXPECT_EQ(counts.Find("ab", OpKind::kEinsum), 2);
  EXPECT_EQ(counts.Find("b", OpKind::kEinsum), 3);
  EXPECT_EQ(counts.Find("", OpKind::kEinsum), 4);
  EXPECT_EQ(counts.Find("a", OpKind::kDotGeneral), 0);
}

}  // namespace
}  // namespace octavo::ops
