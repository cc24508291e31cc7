#include "octavo/weights/convert_floats.h"

#include "octavo/base/error.h"
#include "octavo/numerics/half.h"

namespace octavo::weights {
namespace {

// At most 32 bits.
bool IsShortFloat(DType dtype) { return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16; }

float Load(const Tensor& tensor, int64_t i) {
  if (tensor.dtype() == DType::kF32) return tensor.Data<float>()[i];
  const uint16_t bits = tensor.Data<uint16_t>()[i];
  return tensor.dtype() == DType::kBF16 ? BF16ToF32(bits) : F16ToF32(bits);
}

}  // namespace

bool ConvertsFloats(DType from, DType to) { return IsShortFloat(from) && IsShortFloat(to); }

Tensor ConvertFloats(const Tensor& tensor, DType to) {
  if (!ConvertsFloats(tensor.dtype(), to)) {
    ThrowUsage("ConvertFloats: {} to {}: expected f32, bf16 or f16", tensor.ToString(), NameOf(to));
  }
  const Tensor from = tensor.Contiguous();
  Tensor result = Tensor::Empty(tensor.shape(), to);
  for (int64_t i = 0; i < from.size(); ++i) {
    const float value = Load(from, i);
    if (to == DType::kF32) {
      result.MutableData<float>()[i] = value;
    } else {
      result.MutableData<uint16_t>()[i] = to == DType::kBF16 ? F32ToBF16(value) : F32ToF16(value);
    }
  }
  return result;
}

}  // namespace octavo::weights
