// What the tests of quant/ share: something to run with, random arrays, and dots in double by plain loops.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "octavo/base/error_test_support.h"
#include "octavo/base/thread_pool.h"
#include "octavo/quant/quantize.h"
#include "octavo/quant/run.h"
#include "octavo/tensor/dot_dims.h"

namespace octavo::quant {

struct TestRun {
  explicit TestRun(int threads = 1) : pool(threads) {}
  ThreadPool pool;
  kernels::Workspace workspace;
  MacCount macs;
  Run run{pool, kernels::ChooseIsa().isa, workspace, {}, &macs, false};
  // The plain ways, for comparison.
  Run Reference() const {
    Run plain = run;
    plain.isa = kernels::Isa::kReference;
    plain.reference = true;
    plain.macs = nullptr;
    return plain;
  }
};

inline Tensor F32(const Shape& shape, const std::vector<float>& values) {
  return Tensor::FromValues<float>(shape, DType::kF32, values);
}

inline Tensor Random(const Shape& shape, uint32_t seed, DType dtype = DType::kF32, float spread = 1.0f) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0.0f, spread);
  std::vector<float> values(static_cast<size_t>(shape.size()));
  for (float& value : values) value = normal(engine);
  return CastFloat(F32(shape, values), dtype);
}

inline std::vector<float> Floats(const Tensor& tensor) { return CastFloat(tensor, DType::kF32).ToVector<float>(); }

// The dot in double, with the sum of magnitudes behind each output as the measure of its rounding.
struct DoubleDot {
  std::vector<double> value, magnitude;
};
inline DoubleDot DotInDouble(const Tensor& lhs, const Tensor& rhs, const DotDims& dims) {
  std::vector<int> left = dims.lhs_batch, right = dims.rhs_batch;
  const auto left_free = FreeAxes(lhs.rank(), dims.lhs_contract, dims.lhs_batch);
  const auto right_free = FreeAxes(rhs.rank(), dims.rhs_contract, dims.rhs_batch);
  left.insert(left.end(), left_free.begin(), left_free.end());
  left.insert(left.end(), dims.lhs_contract.begin(), dims.lhs_contract.end());
  right.insert(right.end(), right_free.begin(), right_free.end());
  right.insert(right.end(), dims.rhs_contract.begin(), dims.rhs_contract.end());
  const auto a = Floats(lhs.Permute(left)), b = Floats(rhs.Permute(right));
  const DotSize size = SizeOfDot(lhs.shape(), rhs.shape(), dims);
  DoubleDot result;
  for (int64_t i = 0; i < size.batch * size.m; ++i) {
    for (int64_t j = 0; j < size.n; ++j) {
      double sum = 0, magnitude = 0;
      for (int64_t k = 0; k < size.k; ++k) {
        const double product = static_cast<double>(a[static_cast<size_t>(i * size.k + k)]) *
                               b[static_cast<size_t>((i / size.m * size.n + j) * size.k + k)];
        sum += product;
        magnitude += std::fabs(product);
      }
      result.value.push_back(sum);
      result.magnitude.push_back(magnitude);
    }
  }
  return result;
}

// The largest |actual - expected| / magnitude over all outputs.
inline double WorstError(const Tensor& actual, const DoubleDot& expected) {
  const auto values = Floats(actual);
  double worst = values.size() == expected.value.size() ? 0.0 : 1e30;
  for (size_t i = 0; worst < 1e30 && i < values.size(); ++i) {
    const double scale = std::max(expected.magnitude[i], 1e-30);
    worst = std::max(worst, std::fabs(values[i] - expected.value[i]) / scale);
  }
  return worst;
}

}  // namespace octavo::quant
