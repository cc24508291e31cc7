#include "octavo/weights/convert_floats.h"

#include "octavo/base/error.h"
#include "octavo/numerics/half.h"

namespace octavo::weights {
namespace {

constexpr int64_t kGrain = 1 << 16;

// At most 32 bits.
bool IsShortFloat(DType dtype) { return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16; }

// One loop for each pair of types: no choice inside, so that compilers make vectors of it.
template <typename From, typename To, typename Convert>
void ConvertAll(ThreadPool* pool, const Tensor& from, Tensor& to, const Convert& convert) {
  const From* in = from.Data<From>();
  To* out = to.MutableData<To>();
  const auto piece = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) out[i] = convert(in[i]);
  };
  if (pool == nullptr) {
    piece(0, from.size());
  } else {
    pool->ParallelFor(from.size(), kGrain, piece);
  }
}

void Widen(ThreadPool* pool, const Tensor& from, Tensor& to) {
  if (from.dtype() == DType::kBF16) {
    ConvertAll<uint16_t, float>(pool, from, to, [](uint16_t bits) { return BF16ToF32(bits); });
  } else {
    ConvertAll<uint16_t, float>(pool, from, to, [](uint16_t bits) { return F16ToF32(bits); });
  }
}

void Narrow(ThreadPool* pool, const Tensor& from, Tensor& to) {
  if (to.dtype() == DType::kBF16) {
    ConvertAll<float, uint16_t>(pool, from, to, [](float value) { return F32ToBF16(value); });
  } else {
    ConvertAll<float, uint16_t>(pool, from, to, [](float value) { return F32ToF16(value); });
  }
}

}  // namespace

bool ConvertsFloats(DType from, DType to) { return IsShortFloat(from) && IsShortFloat(to); }

Tensor ConvertFloats(const Tensor& tensor, DType to, ThreadPool* pool) {
  if (!ConvertsFloats(tensor.dtype(), to)) {
    ThrowUsage("ConvertFloats: {} to {}: expected f32, bf16 or f16", tensor.ToString(), NameOf(to));
  }
  const Tensor from = tensor.Contiguous();
  if (from.dtype() == to) return from.Clone();
  Tensor result = Tensor::Empty(tensor.shape(), to);
  if (to == DType::kF32) {
    Widen(pool, from, result);
  } else if (from.dtype() == DType::kF32) {
    Narrow(pool, from, result);
  } else {  // between the short ones, by way of f32: one rounding
    Tensor wide = Tensor::Empty(tensor.shape(), DType::kF32);
    Widen(pool, from, wide);
    Narrow(pool, wide, result);
  }
  return result;
}

}  // namespace octavo::weights
