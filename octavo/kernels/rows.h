// Matrices of f32, bf16 or f16 elements with contiguous columns: the argument type of the row kernels (norms, gates,
// losses, embeddings, …). Plain structs, so that instruction-set units may include this header; the checks that throw
// are in rows.cc.
#pragma once

#include <cstdint>

#include "octavo/numerics/dtype.h"

namespace octavo::kernels {

// Element (r, c) is number r * row_stride + c of `data`.
struct ConstRows {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 0, cols = 0, row_stride = 0;
};

struct MutRows {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 0, cols = 0, row_stride = 0;

  operator ConstRows() const { return {data, dtype, rows, cols, row_stride}; }
};

inline ConstRows RowsOf(const float* data, int64_t rows, int64_t cols) { return {data, DType::kF32, rows, cols, cols}; }
inline MutRows RowsOf(float* data, int64_t rows, int64_t cols) { return {data, DType::kF32, rows, cols, cols}; }
inline ConstRows Bf16RowsOf(const uint16_t* data, int64_t rows, int64_t cols) {
  return {data, DType::kBF16, rows, cols, cols};
}
inline MutRows Bf16RowsOf(uint16_t* data, int64_t rows, int64_t cols) { return {data, DType::kBF16, rows, cols, cols}; }

// Where sequences begin in a list of tokens: sequence s is tokens begin[s] … begin[s + 1] - 1. `count` 0 means one
// sequence that holds them all. Sums over tokens restart their leaves at each sequence.
struct Sequences {
  const int32_t* begin = nullptr;  // [count + 1], begin[0] = 0, ascending, begin[count] = the number of tokens
  int64_t count = 0;
};

// Tokens of one leaf of a sum over tokens (rule R2).
inline constexpr int64_t kTokenLeaf = 256;

// The checks at a kernel's door. `op` and `name` go into the error's text.
void CheckRows(const char* op, const char* name, const ConstRows& m);  // f32 or bf16; sizes, stride and data agree
void CheckSameShape(const char* op, const char* name_a, const ConstRows& a, const char* name_b, const ConstRows& b);
void CheckSameDType(const char* op, const char* name_a, const ConstRows& a, const char* name_b, const ConstRows& b);
void CheckPresent(const char* op, const char* name, const void* data, int64_t count);
void CheckSequences(const char* op, const Sequences& sequences, int64_t tokens);

// A part of the elements of elementwise work: rows and columns, or, when `flat`, columns of the one long row that
// matrices without gaps are.
struct Block {
  int64_t row_begin = 0, row_end = 0, col_begin = 0, col_end = 0;
  bool flat = false;
};

// The block's part of `m`, as rows of their own.
ConstRows PartOf(const ConstRows& m, const Block& block);
MutRows PartOf(const MutRows& m, const Block& block);

// True when all of them can be read as one long row.
template <typename... M>
bool WithoutGaps(const M&... m) {
  return ((m.rows <= 1 || m.row_stride == m.cols) && ...);
}

// Rows that one piece of work should have at least, so that waking a thread pays: about 16,000 elements.
int64_t RowGrain(int64_t cols);

}  // namespace octavo::kernels
