#include "octavo/ops/rows.h"

#include <algorithm>

#include "octavo/base/error.h"

namespace octavo::ops {

Tensor Rows::Starts() const {
  Tensor result = Tensor::Empty({static_cast<int64_t>(sequences.size()) + 1}, DType::kI32);
  const auto starts = result.MutableValues<int32_t>();
  for (size_t i = 0; i < sequences.size(); ++i) starts[i] = static_cast<int32_t>(sequences[i].row_begin);
  starts[sequences.size()] = static_cast<int32_t>(tokens());
  return result;
}

Rows RowsOfBatch(const Tensor& positions, const Tensor& segmentation) {
  if (positions.dtype() != DType::kI32 || segmentation.dtype() != DType::kI32 || positions.rank() != 2 ||
      positions.shape() != segmentation.shape()) {
    ThrowUsage("RowsOfBatch: positions are {} and segment ids {}, expected two i32[B, T]", positions.ToString(),
               segmentation.ToString());
  }
  Rows rows;
  rows.batch = positions.dim(0);
  rows.length = positions.dim(1);
  rows.position = positions.Contiguous().Reshape({rows.tokens()});
  const std::vector<int32_t> ids = segmentation.ToVector<int32_t>();
  for (int64_t b = 0; b < rows.batch; ++b) {
    std::vector<int32_t> seen;
    for (int64_t t = 0; t < rows.length;) {
      const int64_t begin = b * rows.length + t;
      const int32_t id = ids[static_cast<size_t>(begin)];
      if (id != 0 && std::find(seen.begin(), seen.end(), id) != seen.end()) {
        ThrowUsage("RowsOfBatch: row {} returns to segment {} at token {}; the tokens of a segment must be together", b,
                   id, t);
      }
      seen.push_back(id);
      int64_t length = 1;
      while (t + length < rows.length && ids[static_cast<size_t>(begin + length)] == id) ++length;
      rows.sequences.push_back({begin, length});
      t += length;
    }
  }
  return rows;
}

Rows RowsOfShape(int64_t batch, int64_t length) {
  Rows rows;
  rows.batch = batch;
  rows.length = length;
  rows.position = Tensor::Empty({batch * length}, DType::kI32);
  const auto positions = rows.position.MutableValues<int32_t>();
  for (int64_t i = 0; i < batch * length; ++i) positions[static_cast<size_t>(i)] = static_cast<int32_t>(i % length);
  for (int64_t b = 0; b < batch && length > 0; ++b) rows.sequences.push_back({b * length, length});
  return rows;
}

}  // namespace octavo::ops
