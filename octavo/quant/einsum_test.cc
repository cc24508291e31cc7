#include "octavo/quant/einsum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "octavo/quant/quant_test_support.h"

namespace octavo::quant {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Einsum, ParsesEquations) {
  const auto parsed = ParseEinsum("btd, dnh -> btnh");
  EXPECT_THAT(parsed.terms, ElementsAre("btd", "dnh"));
  EXPECT_EQ(parsed.output, "btnh");
  EXPECT_EQ(ParseEinsum("ba,bc").output, "ac");
  for (const char* bad : {"aa,ab->b", "ab,bc->ad", "a.b,b->a", "...a,a->", "ab,bc->aa", "a1,b->ab"}) {
    EXPECT_THROW(ParseEinsum(bad), Error) << bad;
  }
}

TEST(Einsum, BecomesADot) {
  const EinsumDot dot = EinsumAsDot("ecd", "edf", "ecf");
  EXPECT_EQ(dot.dims, (DotDims{{2}, {1}, {0}, {0}}));
  EXPECT_THAT(dot.order, ElementsAre(0, 1, 2));
  EXPECT_THAT(EinsumAsDot("fd", "bd", "bf").order, ElementsAre(1, 0));
  EXPECT_EQ(EinsumAsDot("qp", "pq", "").dims.lhs_contract, (std::vector<int>{1, 0}));  // p before q
}

TEST(Einsum, TwoOperands) {
  TestRun test;
  const Tensor a = Random({2, 3, 16}, 1), b = Random({16, 4, 5}, 2);
  const EinsumEquation equation = ParseEinsum("btd,dnh->btnh");
  std::vector<DotOperand> operands;
  for (size_t i : {size_t{0}, size_t{1}}) {
    operands.push_back(Quantize(i == 0 ? a : b, {Format::kInt8, EinsumGranularity(equation, i), {}}));
  }
  const Tensor out = Einsum(test.run, "btd,dnh->btnh", operands);
  EXPECT_EQ(out.shape(), Shape({2, 3, 4, 5}));
  const auto& l = std::get<QArray>(operands[0]);
  const auto& r = std::get<QArray>(operands[1]);
  EXPECT_LT(WorstError(out, DotInDouble(Dequantize(l), Dequantize(r), {{2}, {0}, {}, {}})), 1e-6);
  EXPECT_EQ(test.macs.integer, 2 * 3 * 16 * 4 * 5);
  // The second operand's scale is applied first: the same as the dot with operands exchanged.
  const Tensor swapped = DotGeneral(test.run, r, l, {{0}, {2}, {}, {}}).Permute({2, 3, 0, 1});
  EXPECT_TRUE(BitEqual(out, swapped));
}

TEST(Einsum, MoreOperandsAndLoneLetters) {
  TestRun test;
  const Tensor x = Random({4, 6}, 1), a = Random({6, 2}, 2), b = Random({2, 5}, 3);
  const std::vector<DotOperand> three = {x, a, b};
  const Tensor xa = F32({4, 2}, [&] {
    const auto dot = DotInDouble(x, a, {{1}, {0}, {}, {}});
    return std::vector<float>(dot.value.begin(), dot.value.end());
  }());
  const Tensor out = Einsum(test.run, "bd,dr,rn->bn", three);
  EXPECT_LT(WorstError(out, DotInDouble(xa, b, {{1}, {0}, {}, {}})), 1e-5);
  // (x a) b costs 4*6*2 + 4*2*5 multiplications, x (a b) would cost 6*2*5 + 4*6*5.
  EXPECT_EQ(test.macs.floating, 4 * 6 * 2 + 4 * 2 * 5);
  // A letter that only one operand has is summed.
  const std::vector<DotOperand> lone = {Random({3, 4}, 5), Random({4, 2}, 6)};
  const Tensor summed = Einsum(test.run, "ab,bc->c", lone);
  double sum = 0;
  for (int64_t i = 0; i < 3; ++i) {
    for (int64_t j = 0; j < 4; ++j) {
      sum += static_cast<double>(std::get<Tensor>(lone[0]).At<float>({i, j})) *
             std::get<Tensor>(lone[1]).At<float>({j, 1});
    }
  }
  EXPECT_NEAR(summed.At<float>({1}), sum, 1e-5);
  EXPECT_EQ(Einsum(test.run, "ab->ba", std::vector<DotOperand>{lone[0]}).shape(), Shape({4, 3}));
}

TEST(Einsum, BroadcastsLetters) {
  TestRun test;
  const std::vector<DotOperand> operands = {Random({1, 3, 4}, 1), Random({2, 4, 5}, 2)};
  const Tensor out = Einsum(test.run, "gab,gbc->gac", operands);
  EXPECT_EQ(out.shape(), Shape({2, 3, 5}));
  const Tensor wide = std::get<Tensor>(operands[0]).RepeatTo({2, 3, 4});
  EXPECT_LT(WorstError(out, DotInDouble(wide, std::get<Tensor>(operands[1]), {{2}, {1}, {0}, {0}})), 1e-6);
}

TEST(Einsum, GranularityTilesTheLastContractedLetterOfTheOperand) {
  const EinsumEquation equation = ParseEinsum("btnh,hnd->btd");
  EXPECT_EQ(EinsumGranularity(equation, 0, TileSize(int64_t{2})).tiled_axes.begin()->first, 3);
  EXPECT_EQ(EinsumGranularity(equation, 1, TileSize(int64_t{2})).tiled_axes.begin()->first, 1);
  EXPECT_THAT(EinsumGranularity(equation, 1).channelwise_axes, ElementsAre(2));
}

TEST(Einsum, Errors) {
  TestRun test;
  const std::vector<DotOperand> two = {Random({2, 3}, 1), Random({4, 5}, 2)};
  EXPECT_THAT(UsageMessage([&] { Einsum(test.run, "ab,bc->ac", two); }), HasSubstr("cannot broadcast"));
  EXPECT_THAT(UsageMessage([&] { Einsum(test.run, "ab->a", two); }), HasSubstr("2 operands given"));
  EXPECT_THAT(UsageMessage([&] { Einsum(test.run, "abc,bc->ac", two); }), HasSubstr("operand 0 is [2, 3]"));
}

}  // namespace
}  // namespace octavo::quant
