#include <cmath>

#include "octavo/models/model.h"
#include "octavo/ops/elementwise.h"

namespace octavo::models {
namespace {

// The standard deviation of a unit normal cut at ±2; the reference divides by it.
constexpr double kTruncatedDeviation = 0.87962566103423978;

uint32_t HashOf(std::string_view name) {
  uint32_t hash = 2166136261u;  // FNV-1a
  for (char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 16777619u;
  return hash;
}

// Draws until the number lies inside ±2; each try has its own stream, so an element depends on its index only.
float TruncatedNormal(RngKey key, uint64_t index) {
  for (uint64_t round = 0;; ++round) {
    const float value = Normal(round == 0 ? key : key.Split(round), index);
    if (std::abs(value) <= 2.0f) return value;
  }
}

Tensor Draw(const nn::Init& init, const Shape& shape, DType dtype, RngKey key, ThreadPool& pool) {
  using Law = nn::Init::Law;
  Tensor values = Tensor::Empty(shape, DType::kF32);
  float* out = values.MutableData<float>();
  const double deviation = std::sqrt(init.scale / static_cast<double>(init.fan_in)) / init.divisor;
  const float factor =
      static_cast<float>(init.law == Law::kTruncatedNormal ? deviation / kTruncatedDeviation : deviation);
  pool.ParallelFor(shape.size(), 1024, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const uint64_t index = static_cast<uint64_t>(i);
      switch (init.law) {
        case Law::kZeros:
          out[i] = 0;
          break;
        case Law::kOnes:
          out[i] = 1;
          break;
        case Law::kNormal:
          out[i] = Normal(key, index) * factor;
          break;
        case Law::kTruncatedNormal:
          out[i] = TruncatedNormal(key, index) * factor;
          break;
      }
    }
  });
  kernels::Workspace workspace;
  ops::Context context(pool, kernels::Isa::kReference, workspace);
  return ops::CastTensor(context, values, dtype);
}

}  // namespace

void Initialize(Model& model, RngKey key, ThreadPool& pool) {
  for (ops::Parameter* parameter : model.parameters()) {
    const nn::Init& init = model.parameter_set().InitOf(*parameter);
    parameter->value =
        Draw(init, parameter->shape(), parameter->tensor().dtype(), key.FoldIn(HashOf(parameter->name)), pool);
  }
}

}  // namespace octavo::models
