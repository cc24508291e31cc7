#include "octavo/quant/manual_quantize.h"

#include <gtest/gtest.h>

#include "octavo/base/error.h"
#include "octavo/base/float_mode.h"

namespace octavo::quant {
namespace {

TEST(ManualQuantize, OneFixedScale) {
  SetFloatMode();
  const Tensor x = Tensor::FromValues<float>({1, 5}, DType::kF32, std::vector<float>{0, 0.6f, -224, 224, 500});
  const QArray fp8 = ManualQuantize(x, Format::kF8E4M3FN, "fixed,-224,224");
  EXPECT_EQ(fp8.scale.ToVector<float>(), std::vector<float>{0.5f});
  EXPECT_EQ(fp8.qvalue.ToVector<uint8_t>()[3], 0x7e);  // 448
  EXPECT_EQ(fp8.qvalue.ToVector<uint8_t>()[4], 0x7e);  // saturated
  const QArray int8 = ManualQuantize(x, Format::kInt8, "FIXED,127.5");
  EXPECT_EQ(int8.qvalue.ToVector<int8_t>(), (std::vector<int8_t>{0, 1, -128, 127, 127}));  // rounded, not cut off
}

TEST(ManualQuantize, ItsThreeErrors) {
  const Tensor x = Tensor::Zeros({2}, DType::kF32);
  for (const char* bad : {"", "absmax", "rms,3", "fixed,-1,2", "fixed", "fixed,1,2,3", "fixed,0", "fixed,-3"}) {
    EXPECT_THROW(ManualQuantize(x, Format::kInt8, bad), Error) << bad;
  }
}

}  // namespace
}  // namespace octavo::quant
