#include "octavo/weights/transpose.h"

#include <gtest/gtest.h>

#include <numeric>

namespace octavo::weights {
namespace {

template <typename T>
void Check(int64_t rows, int64_t columns, DType dtype) {
  std::vector<T> values(static_cast<size_t>(rows * columns));
  std::iota(values.begin(), values.end(), T{1});
  const Tensor matrix = Tensor::FromValues<T>(Shape{rows, columns}, dtype, values);
  EXPECT_TRUE(BitEqual(Transposed(matrix), matrix.Transpose().Contiguous())) << rows << " " << columns;
  EXPECT_TRUE(BitEqual(Transposed(matrix.Transpose()), matrix)) << rows << " " << columns;  // of a strided view
}

TEST(Transposed, IsTheStridedCopy) {
  const std::pair<int64_t, int64_t> shapes[] = {{1, 1}, {1, 70}, {70, 1}, {31, 33}, {32, 64}, {65, 97}, {0, 5}};
  for (const auto& shape : shapes) {
    Check<int8_t>(shape.first, shape.second, DType::kI8);
    Check<float>(shape.first, shape.second, DType::kF32);
    Check<double>(shape.first, shape.second, DType::kF64);
    Check<int32_t>(shape.first, shape.second, DType::kI32);
  }
}

}  // namespace
}  // namespace octavo::weights
