#include "octavo/base/nearest.h"

#include <gtest/gtest.h>

namespace octavo {
namespace {

TEST(Nearest, EditDistance) {
  EXPECT_EQ(EditDistance("", ""), 0);
  EXPECT_EQ(EditDistance("abc", ""), 3);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3);
  EXPECT_EQ(EditDistance("quantisation", "quantization"), 1);
  EXPECT_EQ(EditDistance("tarin", "train"), 1);
}

TEST(Nearest, NearestThreeInOrder) {
  const std::vector<std::string_view> known = {"train", "convert", "serve", "doctor", "chat", "plan"};
  EXPECT_EQ(NearestNames("trian", known, 1), std::vector<std::string>{"train"});
  EXPECT_EQ(NearestNames("doc", known, 1), std::vector<std::string>{"doctor"});
  EXPECT_EQ(NearestNames("x", known, 3).size(), 3u);
  EXPECT_TRUE(NearestNames("x", {}, 3).empty());
}

}  // namespace
}  // namespace octavo
