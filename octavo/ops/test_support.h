// For tests of ops: a context with everything it needs, and random tensors.
#pragma once

#include <cmath>
#include <random>

#include "octavo/kernels/isa.h"
#include "octavo/ops/context.h"
#include "octavo/tensor/tensor.h"

namespace octavo::ops {

struct TestBench {
  explicit TestBench(int threads = 2) : pool(threads) {}
  ThreadPool pool;
  kernels::Workspace workspace;
  Context context{pool, kernels::ChooseIsa().isa, workspace};
};

inline Tensor RandomTensor(const Shape& shape, uint32_t seed, float low = -1, float high = 1) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(low, high);
  Tensor result = Tensor::Empty(shape, DType::kF32);
  for (float& value : result.MutableValues<float>()) value = uniform(random);
  return result;
}

// Element i is sin(step * i + 1).
inline Tensor WaveTensor(const Shape& shape, double step) {
  Tensor result = Tensor::Empty(shape, DType::kF32);
  double i = 0;
  for (float& value : result.MutableValues<float>()) value = static_cast<float>(std::sin(step * i++ + 1));
  return result;
}

inline Tensor IntTensor(const Shape& shape, const std::vector<int32_t>& values) {
  return Tensor::FromValues<int32_t>(shape, DType::kI32, values);
}

}  // namespace octavo::ops
