#include "octavo/quant/how_to_quantize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "octavo/base/error_test_support.h"

namespace octavo::quant {
namespace {

using ::testing::HasSubstr;

TEST(Calibration, ParsesEveryForm) {
  EXPECT_EQ(ParseCalibration("absmax"), (Calibration{CalibrationMethod::kAbsMax, 1.0}));
  EXPECT_EQ(ParseCalibration("AbsMax, 0.9"), (Calibration{CalibrationMethod::kAbsMax, 0.9}));
  EXPECT_EQ(ParseCalibration("minmax,1.5"), (Calibration{CalibrationMethod::kMinMax, 1.5}));
  EXPECT_EQ(ParseCalibration("rms,7"), (Calibration{CalibrationMethod::kRms, 7.0}));
  EXPECT_EQ(ParseCalibration("fixed,3"), (Calibration{CalibrationMethod::kFixed, 1.0, -3, 3}));
  EXPECT_EQ(ParseCalibration("fixed,-1,2"), (Calibration{CalibrationMethod::kFixed, 1.0, -1, 2}));
  for (const char* text : {"absmax", "absmax,0.9", "minmax", "rms,7", "fixed,3", "fixed,-1,2"}) {
    EXPECT_EQ(ToString(ParseCalibration(text)), text);
  }
}

TEST(Calibration, RefusesWithTheReason) {
  EXPECT_EQ(UsageMessage([] { ParseCalibration("quantile,3"); }),
            "calibration method 'quantile,3': 'quantile' is not a method");
  EXPECT_EQ(UsageMessage([] { ParseCalibration("rms"); }), "calibration method 'rms': rms needs a factor");
  EXPECT_EQ(UsageMessage([] { ParseCalibration("fixed,-3"); }),
            "calibration method 'fixed,-3': the range must contain 0 and must not be empty");
  EXPECT_THAT(UsageMessage([] { ParseCalibration("fixed"); }), HasSubstr("0 numbers, one or two are needed"));
  for (const char* bad : {"", "absmax,", "absmax,x", "absmax,1,2", "absmax,0", "absmax,-1", "absmax,nan", "absmax,inf",
                          "fixed,1,2,3", "fixed,1,2", "fixed,-2,-1", "fixed,0", "rms,1e999", "minmax 2"}) {
    EXPECT_THROW(ParseCalibration(bad), Error) << bad;
  }
}

TEST(Rounding, Names) {
  EXPECT_EQ(ParseRounding(""), Rounding::kNearest);
  EXPECT_EQ(ParseRounding("uniform"), Rounding::kUniformNoise);
  EXPECT_EQ(ParseRounding("low_bit_uniform"), Rounding::kLowBitNoise);
  EXPECT_THROW(ParseRounding("dither"), Error);
}

TEST(TileSize, FractionsCountTiles) {
  EXPECT_EQ(TileElements(int64_t{32}, 256), 32);
  EXPECT_EQ(TileElements(0.25, 256), 64);
  EXPECT_EQ(TileElements(1.0, 256), 256);       // one tile
  EXPECT_EQ(TileElements(int64_t{1}, 256), 1);  // a tile for each element
  EXPECT_EQ(TileElements(0.5, 5), 2);           // half to even
  EXPECT_EQ(TileElements(0.5, 7), 4);
}

TEST(ScaleShape, ChannelsTilesAndTheRest) {
  HowToQuantize how;
  EXPECT_EQ(ScaleShape("Q", {6, 64}, how), Shape({1, 1}));
  how.granularity = {{0}, {{1, int64_t{16}}}};
  EXPECT_EQ(ScaleShape("Q", {6, 64}, how), Shape({6, 4}));
  how.granularity = {{}, {{0, 0.5}, {1, 1.0}}};
  EXPECT_EQ(ScaleShape("Q", {6, 64}, how), Shape({2, 1}));
  how.granularity = {{0}, {}};
  EXPECT_EQ(ScaleShape("Q", {0, 64}, how), Shape({0, 1}));
}

TEST(ScaleShape, Errors) {
  HowToQuantize how;
  how.granularity = {{0}, {{1, int64_t{7}}}};
  EXPECT_EQ(UsageMessage([&] {
              ScaleShape("Quantize", {6, 64}, how);
            }),
            "Quantize: [6, 64] cannot be tiled by 7 on axis 1: 64 is no multiple of it");
  how.granularity = {{1}, {{1, int64_t{8}}}};
  EXPECT_THAT(UsageMessage([&] { ScaleShape("Quantize", {6, 64}, how); }), HasSubstr("named twice"));
  how.granularity = {{1, 1}, {}};
  EXPECT_THROW(ScaleShape("Quantize", {6, 64}, how), Error);
  for (int axis : {-1, 2}) {
    how.granularity = {{axis}, {}};
    EXPECT_THAT(UsageMessage([&] { ScaleShape("Quantize", {6, 64}, how); }), HasSubstr("which has 2 axes"));
  }
  for (TileSize tile : {TileSize(int64_t{0}), TileSize(int64_t{-4}), TileSize(0.0), TileSize(0.3), TileSize(2.0)}) {
    how.granularity = {{}, {{1, tile}}};
    EXPECT_THROW(ScaleShape("Quantize", {6, 64}, how), Error) << ToString(tile);
  }
}

TEST(ScaleShape, BlockFormatsFixTheTile) {
  HowToQuantize how{Format::kMxfp8, {{0}, {{1, int64_t{16}}}}, {}};
  EXPECT_EQ(UsageMessage([&] {
              ScaleShape("Quantize", {6, 64}, how);
            }),
            "Quantize: format mxfp8 requires tiles of 32, axis 1 has 16");
  how.granularity.tiled_axes = {};
  EXPECT_THROW(ScaleShape("Quantize", {6, 64}, how), Error);
  how.granularity.tiled_axes = {{1, 0.5}};
  EXPECT_THROW(ScaleShape("Quantize", {6, 64}, how), Error);
  how.granularity.tiled_axes = {{1, int64_t{32}}};
  EXPECT_EQ(ScaleShape("Quantize", {6, 64}, how), Shape({6, 2}));
  how.format = Format::kNvfp4;
  how.granularity.tiled_axes = {{1, int64_t{16}}};
  EXPECT_EQ(ScaleShape("Quantize", {6, 64}, how), Shape({6, 4}));
}

}  // namespace
}  // namespace octavo::quant
