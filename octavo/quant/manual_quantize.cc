#include "octavo/quant/manual_quantize.h"

#include <vector>

#include "octavo/base/error.h"
#include "octavo/quant/how_to_quantize.h"
#include "octavo/quant/quantize.h"

namespace octavo::quant {

QArray ManualQuantize(const Tensor& tensor, Format format, std::string_view method, const Arithmetic& arithmetic) {
  if (method.empty()) {
    throw Error(ErrorCode::kUsage, "ManualQuantize: no calibration method", "expected fixed,MAX or fixed,-MAX,MAX");
  }
  const Calibration calibration = ParseCalibration(method);
  if (calibration.method != CalibrationMethod::kFixed) {
    throw Error(ErrorCode::kUsage, fmt::format("ManualQuantize: method '{}' is not fixed", method),
                "a scale that depends on the data needs rules; here use fixed,MAX or fixed,-MAX,MAX");
  }
  if (calibration.low + calibration.high != 0 || !(calibration.high > 0)) {
    throw Error(ErrorCode::kUsage, fmt::format("ManualQuantize: the range of '{}' is not symmetric", method),
                "expected fixed,-MAX,MAX with the same MAX twice");
  }
  double scale = calibration.high / static_cast<double>(SymmetricBound(format));
  if (scale < 0x1p-63) scale = 1.0;  // as everywhere: a scale whose square would be subnormal
  const Shape ones(std::vector<int64_t>(static_cast<size_t>(tensor.rank()), 1));
  const Tensor f32 = Tensor::FromValues<float>(ones, DType::kF32, std::vector<float>{static_cast<float>(scale)});
  return QuantizeWithScale(tensor, format, {CastFloat(f32, tensor.dtype()), std::nullopt}, nullptr, arithmetic);
}

}  // namespace octavo::quant
