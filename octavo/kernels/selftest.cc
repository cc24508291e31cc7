#include "octavo/kernels/selftest.h"

#include <exception>

#include "octavo/kernels/self_test_cases.h"

namespace octavo::kernels {
namespace {

constexpr struct {
  const char* name;
  void (*run)(ThreadPool&, Isa, SelfTestLog&);
} kCases[] = {
    {"math", SelfTestMath},
    {"matmul f32", SelfTestMatMulF32},
    {"matmul int8", SelfTestMatMulI8},
    {"matmul int8 x int4", SelfTestMatMulU4},
    {"quantize", SelfTestQuantize},
    {"attention", SelfTestAttention},
    {"norm", SelfTestNorm},
    {"rope", SelfTestRope},
    {"activation", SelfTestActivation},
    {"elementwise", SelfTestElementwise},
    {"loss", SelfTestLoss},
    {"embedding", SelfTestEmbedding},
    {"reductions", SelfTestReductions},
    {"optimizer", SelfTestOptimizer},
    {"experts", SelfTestExperts},
};

}  // namespace

std::vector<SelfTestResult> RunSelfTests(ThreadPool& pool, Isa isa) {
  std::vector<SelfTestResult> results;
  for (const auto& one : kCases) {
    try {
      SelfTestLog log;
      one.run(pool, isa, log);
      results.push_back({one.name, isa, log.passed(), log.detail()});
    } catch (const std::exception& error) {
      results.push_back({one.name, isa, false, error.what()});
    }
  }
  return results;
}

}  // namespace octavo::kernels
