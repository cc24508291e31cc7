#include "octavo/kernels/selftest.h"

#include <gtest/gtest.h>

#include <set>

#include "octavo/kernels/self_test_cases.h"

namespace octavo::kernels {
namespace {

TEST(SelfTest, EveryFamilyPasses) {
  for (int threads : {1, 2}) {
    ThreadPool pool(threads);
    for (Isa isa : AvailableIsas()) {
      std::set<std::string> names;
      for (const SelfTestResult& result : RunSelfTests(pool, isa)) {
        EXPECT_TRUE(result.passed) << result.name << ": " << result.detail;
        EXPECT_EQ(result.isa, isa);
        EXPECT_NE(result.detail.find("equal to the reference"), std::string::npos) << result.name;
        EXPECT_TRUE(names.insert(result.name).second) << result.name;
      }
      EXPECT_GE(names.size(), 15u);
    }
  }
}

TEST(SelfTest, TheLogNamesTheFirstDifference) {
  SelfTestLog log;
  EXPECT_FALSE(log.passed());  // nothing compared is no success
  log.Compare("same", std::vector<int>{1, 2}, std::vector<int>{1, 2});
  EXPECT_TRUE(log.passed());
  log.Compare("norm f32", std::vector<uint8_t>{1, 2, 3}, std::vector<uint8_t>{1, 9, 3});
  log.Compare("norm bf16", std::vector<uint8_t>{1}, std::vector<uint8_t>{2});
  EXPECT_FALSE(log.passed());
  EXPECT_EQ(log.detail(), "norm f32: byte 1 of 3 differs from the reference (and 1 more results)");
}

}  // namespace
}  // namespace octavo::kernels
