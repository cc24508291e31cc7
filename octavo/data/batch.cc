#include "octavo/data/batch.h"

namespace octavo::data {

Batch EmptyBatch(int64_t rows, int64_t length) {
  const Shape shape({rows, length});
  return {Tensor::Zeros(shape, DType::kI32), Tensor::Zeros(shape, DType::kI32), Tensor::Zeros(shape, DType::kI32),
          Tensor::Zeros(shape, DType::kI32), Tensor::Zeros(shape, DType::kI32), Tensor::Zeros(shape, DType::kI32)};
}

int64_t TargetWeights(const Batch& batch) {
  int64_t count = 0;
  for (const int32_t segment : batch.targets_segmentation.Values<int32_t>()) count += segment != 0 ? 1 : 0;
  return count;
}

}  // namespace octavo::data
