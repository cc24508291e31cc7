#include "octavo/kernels/rows.h"

#include <algorithm>

#include "octavo/base/error.h"

namespace octavo::kernels {

void CheckRows(const char* op, const char* name, const ConstRows& m) {
  if (m.dtype != DType::kF32 && m.dtype != DType::kBF16) {
    ThrowUsage("{}: {} is {}, expected f32 or bf16", op, name, NameOf(m.dtype));
  }
  if (m.rows < 0 || m.cols < 0) ThrowUsage("{}: {} has shape [{}, {}]", op, name, m.rows, m.cols);
  if (m.rows > 1 && m.row_stride < m.cols) {
    ThrowUsage("{}: {} has {} columns but a row stride of {}", op, name, m.cols, m.row_stride);
  }
  CheckPresent(op, name, m.data, m.rows * m.cols);
}

void CheckSameShape(const char* op, const char* name_a, const ConstRows& a, const char* name_b, const ConstRows& b) {
  if (a.rows != b.rows || a.cols != b.cols) {
    ThrowUsage("{}: {} is [{}, {}], {} is [{}, {}]; expected equal shapes", op, name_a, a.rows, a.cols, name_b, b.rows,
               b.cols);
  }
}

void CheckSameDType(const char* op, const char* name_a, const ConstRows& a, const char* name_b, const ConstRows& b) {
  if (a.dtype != b.dtype) {
    ThrowUsage("{}: {} is {}, {} is {}; expected one dtype", op, name_a, NameOf(a.dtype), name_b, NameOf(b.dtype));
  }
}

void CheckPresent(const char* op, const char* name, const void* data, int64_t count) {
  if (data == nullptr && count > 0) ThrowUsage("{}: {} is missing ({} elements expected)", op, name, count);
}

void CheckSequences(const char* op, const Sequences& sequences, int64_t tokens) {
  if (sequences.count == 0) return;
  if (sequences.count < 0 || sequences.begin == nullptr) {
    ThrowUsage("{}: {} sequences without their starts", op, sequences.count);
  }
  if (sequences.begin[0] != 0) ThrowUsage("{}: the first sequence starts at {}, not at 0", op, sequences.begin[0]);
  for (int64_t s = 0; s < sequences.count; ++s) {
    if (sequences.begin[s + 1] < sequences.begin[s]) {
      ThrowUsage("{}: sequence {} starts at {} and ends at {}", op, s, sequences.begin[s], sequences.begin[s + 1]);
    }
  }
  if (sequences.begin[sequences.count] != tokens) {
    ThrowUsage("{}: the sequences hold {} tokens, the data {}", op, sequences.begin[sequences.count], tokens);
  }
}

ConstRows PartOf(const ConstRows& m, const Block& block) {
  const int64_t offset = (block.flat ? 0 : block.row_begin * m.row_stride) + block.col_begin;
  const char* data = static_cast<const char*>(m.data) + offset * SizeOf(m.dtype);
  const int64_t cols = block.col_end - block.col_begin;
  return {data, m.dtype, block.flat ? 1 : block.row_end - block.row_begin, cols, block.flat ? cols : m.row_stride};
}

MutRows PartOf(const MutRows& m, const Block& block) {
  const ConstRows part = PartOf(static_cast<ConstRows>(m), block);
  return {const_cast<void*>(part.data), part.dtype, part.rows, part.cols, part.row_stride};
}

int64_t RowGrain(int64_t cols) { return std::max<int64_t>(1, 16384 / std::max<int64_t>(1, cols)); }

}  // namespace octavo::kernels
