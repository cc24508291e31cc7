#include "octavo/kernels/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/base/thread_pool.h"
#include "octavo/kernels/numeric_gradient.h"
#include "octavo/kernels/rope_table.h"
#include "octavo/kernels/sample_rows.h"

namespace octavo::kernels {
namespace {

const RopeLayout kLayouts[] = {RopeLayout::kHalves, RopeLayout::kPairs, RopeLayout::kPairsToHalves};
const RopeDirection kDirections[] = {RopeDirection::kForward, RopeDirection::kBackward};

void ExpectFrequencies(const RopeConfig& config, const std::vector<std::pair<int, double>>& expected) {
  const RopeFrequencies frequencies = MakeRopeFrequencies(config);
  for (auto [pair, value] : expected) {
    EXPECT_NEAR(frequencies.inverse.at(pair) / value, 1.0, 2e-14) << "pair " << pair;
  }
}

// The expected numbers were computed in double from the published formulas with another program.
TEST(RopeTable, FrequenciesOfEachScaling) {
  ExpectFrequencies({.rotary_dim = 128}, {{0, 1.0}, {1, 0.8659643233600653}, {63, 0.00011547819846894582}});
  ExpectFrequencies({.rotary_dim = 128, .scaling = RopeScaling::kLinear, .factor = 8},
                    {{0, 0.125}, {1, 0.8659643233600653 / 8}});
  ExpectFrequencies({.rotary_dim = 128,
                     .max_timescale = 5e5,
                     .scaling = RopeScaling::kLlama3,
                     .factor = 8,
                     .original_positions = 8192},
                    {{0, 1.0},
                     {20, 0.016560440080994446},
                     {29, 0.002166570763503359},
                     {32, 0.0005248461609929547},
                     {34, 0.0001785078127679964},
                     {36, 7.78465527393245e-05},
                     {63, 3.068925988914511e-07}});
  ExpectFrequencies({.rotary_dim = 64,
                     .max_timescale = 150000,
                     .scaling = RopeScaling::kYarn,
                     .factor = 32,
                     .original_positions = 4096,
                     .truncate = false},
                    {{0, 1.0},
                     {8, 0.050813274815461475},
                     {12, 0.006794959489732219},
                     {17, 0.0001293187012450632},
                     {31, 3.0235114281192144e-07}});
  ExpectFrequencies({.rotary_dim = 64, .scaling = RopeScaling::kYarn, .factor = 40, .original_positions = 4096},
                    {{0, 1.0}, {10, 0.05623413251903491}, {11, 0.03900692656714386}, {16, 0.0055}, {24, 2.5e-05}});
  EXPECT_NEAR(YarnMscale(40, 1), 1.3688879454113936, 1e-15);
  EXPECT_EQ(YarnMscale(1, 1), 1.0);
}

TEST(RopeTable, TimescalesAndStandingPairs) {
  const RopeFrequencies f =
      MakeRopeFrequencies({.rotary_dim = 8, .max_timescale = 3200, .min_timescale = 2, .rotated_pairs = 2});
  EXPECT_NEAR(f.inverse[0], 0.5, 1e-15);
  EXPECT_NEAR(f.inverse[1], 0.5 / std::pow(1600.0, 0.25), 1e-15);
  EXPECT_EQ(f.inverse[2], 0.0);
  EXPECT_EQ(f.inverse[3], 0.0);
}

TEST(RopeTable, RoundedOnceAtEveryPosition) {
  ThreadPool pool(2);
  const RopeFrequencies f = MakeRopeFrequencies({.rotary_dim = 22, .attention_factor = 1.25});
  for (int64_t first : {int64_t{0}, int64_t{131071}, int64_t{1} << 29}) {
    std::vector<float> cos(50 * 11), sin(50 * 11);
    FillRopeTable(pool, ChooseIsa().isa, f, first, 50, cos.data(), sin.data());
    for (int64_t row = 0; row < 50; ++row) {
      for (int64_t i = 0; i < 11; ++i) {
        const double angle = static_cast<double>(first + row) * f.inverse[i];
        const auto expect = [&](float found, long double exact) {
          const double ulp = std::nextafter(std::abs(found), std::numeric_limits<float>::infinity()) - std::abs(found);
          ASSERT_LE(std::abs(static_cast<double>(found - exact)), 0.5001 * ulp) << first + row << " " << i;
        };
        expect(cos[row * 11 + i], std::cos(static_cast<long double>(angle)) * 1.25L);
        expect(sin[row * 11 + i], std::sin(static_cast<long double>(angle)) * 1.25L);
      }
    }
  }
}

TEST(RopeTable, ARowDependsOnItsPositionOnly) {
  ThreadPool one(1);
  const RopeFrequencies f = MakeRopeFrequencies({.rotary_dim = 26, .max_timescale = 5e5});
  std::vector<float> cos(3000 * 13), sin(3000 * 13);
  FillRopeTable(one, Isa::kReference, f, 0, 3000, cos.data(), sin.data());
  for (int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    for (int64_t first : {0, 1, 1700}) {
      std::vector<float> c((3000 - first) * 13), s((3000 - first) * 13);
      FillRopeTable(pool, ChooseIsa().isa, f, first, 3000 - first, c.data(), s.data());
      EXPECT_EQ(c, std::vector<float>(cos.begin() + first * 13, cos.end()));
      EXPECT_EQ(s, std::vector<float>(sin.begin() + first * 13, sin.end()));
    }
  }
}

TEST(RopeTable, RefusesImpossibleConfigurations) {
  EXPECT_THROW(MakeRopeFrequencies({.rotary_dim = 7}), Error);
  EXPECT_THROW(MakeRopeFrequencies({.rotary_dim = 8, .max_timescale = 0}), Error);
  EXPECT_THROW(MakeRopeFrequencies({.rotary_dim = 8, .scaling = RopeScaling::kLinear, .factor = 0}), Error);
  EXPECT_THROW(MakeRopeFrequencies({.rotary_dim = 8, .scaling = RopeScaling::kYarn, .factor = 2}), Error);
  EXPECT_THROW(MakeRopeFrequencies({.rotary_dim = 8,
                                    .scaling = RopeScaling::kLlama3,
                                    .factor = 2,
                                    .original_positions = 64,
                                    .low_freq_factor = 4}),
               Error);
  ThreadPool pool(1);
  float cell = 0;
  EXPECT_THROW(
      FillRopeTable(pool, ChooseIsa().isa, MakeRopeFrequencies({.rotary_dim = 2}), int64_t{1} << 31, 1, &cell, &cell),
      Error);
}

// Heads of a few tokens, with everything needed to turn them.
struct Case {
  int64_t tokens, heads, head_dim;
  SampleRows in, out;
  std::vector<int32_t> position;
  std::vector<float> cos, sin;
  RopeArgs args;

  Case(DType dtype, int64_t t, int64_t h, int64_t d, int64_t rotary, RopeLayout layout, RopeDirection direction)
      : tokens(t), heads(h), head_dim(d), in(SampleRows::Random(dtype, t * h, d, 3)), out(dtype, t * h, d) {
    for (int64_t i = 0; i < t; ++i) position.push_back(static_cast<int32_t>(10 + (i * 7) % 30));
    cos.resize(30 * rotary / 2);
    sin.resize(30 * rotary / 2);
    ThreadPool pool(1);
    FillRopeTable(pool, Isa::kReference, MakeRopeFrequencies({.rotary_dim = rotary}), 10, 30, cos.data(), sin.data());
    args = {direction, layout, dtype, t, h, d, rotary};
  }
  void Run(ThreadPool& pool, Isa isa) {
    args.in = in.view().data;
    args.out = out.mut().data;
    args.in_head_stride = args.out_head_stride = in.view().row_stride;
    args.in_token_stride = args.out_token_stride = heads * args.in_head_stride;
    args.position = position.data();
    args.cos = cos.data();
    args.sin = sin.data();
    args.table_first = 10;
    args.table_rows = 30;
    Rope(pool, isa, args);
  }
};

TEST(Rope, FastEqualsReferenceForEverySize) {
  ThreadPool pool(1);
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    for (RopeLayout layout : kLayouts) {
      for (RopeDirection direction : kDirections) {
        for (int64_t rotary = 2; rotary <= 70; rotary += 2) {
          for (int64_t rest : {0, 5}) {
            Case reference(dtype, 3, 2, rotary + rest, rotary, layout, direction);
            Case fast(dtype, 3, 2, rotary + rest, rotary, layout, direction);
            reference.Run(pool, Isa::kReference);
            fast.Run(pool, ChooseIsa().isa);
            ASSERT_EQ(reference.out, fast.out) << static_cast<int>(layout) << " " << rotary << " " << rest;
          }
        }
      }
    }
  }
}

TEST(Rope, ThreadsNeverChangeABit) {
  ThreadPool one(1);
  Case alone(DType::kF32, 301, 3, 64, 64, RopeLayout::kPairs, RopeDirection::kForward);
  alone.Run(one, ChooseIsa().isa);
  for (int threads : {2, 3, 7}) {
    ThreadPool pool(threads);
    Case many(DType::kF32, 301, 3, 64, 64, RopeLayout::kPairs, RopeDirection::kForward);
    many.Run(pool, ChooseIsa().isa);
    EXPECT_EQ(alone.out, many.out);
  }
}

TEST(Rope, TurnsByTheAngleOfThePosition) {
  ThreadPool pool(1);
  for (RopeLayout layout : kLayouts) {
    Case one(DType::kF32, 4, 2, 8, 6, layout, RopeDirection::kForward);
    one.Run(pool, ChooseIsa().isa);
    for (int64_t row = 0; row < 8; ++row) {
      for (int64_t i = 0; i < 3; ++i) {
        const bool halves = layout == RopeLayout::kHalves;
        const double a = one.in.Get(row, halves ? i : 2 * i), b = one.in.Get(row, halves ? i + 3 : 2 * i + 1);
        const double angle = one.position[row / 2] * std::pow(1e4, -i / 3.0);
        const bool pairs_out = layout == RopeLayout::kPairs;
        EXPECT_NEAR(one.out.Get(row, pairs_out ? 2 * i : i), a * std::cos(angle) - b * std::sin(angle), 1e-6);
        EXPECT_NEAR(one.out.Get(row, pairs_out ? 2 * i + 1 : i + 3), b * std::cos(angle) + a * std::sin(angle), 1e-6);
      }
      EXPECT_EQ(one.out.Get(row, 6), one.in.Get(row, 6));
      EXPECT_EQ(one.out.Get(row, 7), one.in.Get(row, 7));
    }
  }
}

// The forward pass is linear: its finite differences are its columns, and the gradient is its transpose.
TEST(Rope, BackwardMatchesFiniteDifferences) {
  ThreadPool pool(1);
  for (RopeLayout layout : kLayouts) {
    Case back(DType::kF32, 1, 1, 12, 10, layout, RopeDirection::kBackward);  // `in` is grad_y
    back.Run(pool, ChooseIsa().isa);
    Case forward(DType::kF32, 1, 1, 12, 10, layout, RopeDirection::kForward);
    const auto loss = [&](const std::vector<double>& x) {
      for (int64_t c = 0; c < 12; ++c) forward.in.Set(0, c, static_cast<float>(x[c]));
      forward.Run(pool, Isa::kReference);
      double sum = 0;
      for (int64_t c = 0; c < 12; ++c) sum += static_cast<double>(forward.out.Get(0, c)) * back.in.Get(0, c);
      return sum;
    };
    const auto gradient = NumericGradient(std::vector<double>(12, 0.0), loss, 1.0);
    for (int64_t c = 0; c < 12; ++c) EXPECT_NEAR(back.out.Get(0, c), gradient[c], 1e-6);
  }
}

TEST(Rope, InPlaceAndThereAndBack) {
  ThreadPool pool(2);
  Case one(DType::kF32, 5, 2, 32, 32, RopeLayout::kHalves, RopeDirection::kForward);
  one.Run(pool, ChooseIsa().isa);
  RopeArgs in_place = one.args;
  in_place.out = one.in.mut().data;
  const SampleRows before = one.in;
  Rope(pool, ChooseIsa().isa, in_place);
  EXPECT_EQ(one.in, one.out);
  in_place.direction = RopeDirection::kBackward;
  Rope(pool, ChooseIsa().isa, in_place);
  for (int64_t r = 0; r < 10; ++r) {
    for (int64_t c = 0; c < 32; ++c) EXPECT_NEAR(one.in.Get(r, c), before.Get(r, c), 3e-7);
  }
}

TEST(Rope, RefusesWhatDoesNotFit) {
  ThreadPool pool(1);
  Case one(DType::kF32, 3, 1, 8, 8, RopeLayout::kPairsToHalves, RopeDirection::kForward);
  one.Run(pool, ChooseIsa().isa);
  const auto refuses = [&](auto change) {
    RopeArgs args = one.args;
    change(args);
    EXPECT_THROW(Rope(pool, ChooseIsa().isa, args), Error);
  };
  refuses([](RopeArgs& a) { a.rotary_dim = 10; });
  refuses([](RopeArgs& a) { a.rotary_dim = 3; });
  refuses([](RopeArgs& a) { a.out = const_cast<void*>(a.in); });
  refuses([](RopeArgs& a) { a.table_rows = 10; });
  refuses([](RopeArgs& a) { a.table_first = 11; });
  refuses([](RopeArgs& a) { a.dtype = DType::kF16; });
  refuses([](RopeArgs& a) { a.position = nullptr; });
  one.args.tokens = 0;
  one.args.position = nullptr;
  Rope(pool, ChooseIsa().isa, one.args);
}

}  // namespace
}  // namespace octavo::kernels
