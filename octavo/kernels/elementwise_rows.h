// The loops behind elementwise.h over checked arguments. Plain structs only: an instruction-set unit includes this.
#pragma once

#include <cstdint>

#include "octavo/kernels/rows.h"

namespace octavo::kernels {

enum class ElementwiseOp : uint8_t {
  kAdd,        // a + b
  kMultiply,   // a * b
  kScale,      // a * scalar
  kAddScaled,  // a + scalar * b, both operations rounded
};

void ElementwiseRef(ElementwiseOp op, const ConstRows& a, const ConstRows& b, float scalar, const MutRows& out);
void ElementwiseAvx2(ElementwiseOp op, const ConstRows& a, const ConstRows& b, float scalar, const MutRows& out);

void CastRef(const ConstRows& in, const MutRows& out);
void CastAvx2(const ConstRows& in, const MutRows& out);

// bias is [cols] of the part.
void BiasAddRef(const ConstRows& x, const float* bias, const MutRows& out);
void BiasAddAvx2(const ConstRows& x, const float* bias, const MutRows& out);

// sum[c] = the ascending chain over the rows of the part, from +0.
void ColumnSumRef(const ConstRows& x, float* sum);
void ColumnSumAvx2(const ConstRows& x, float* sum);

struct DropoutRow {
  const void* x;
  void* out;
  DType dtype;
  uint32_t key0, key1;
  float keep, scale;  // 1 - rate and its reciprocal
};
// Elements [0, cols) of one row, whose first element has `index` in the stream.
void DropoutRowRef(const DropoutRow& args, uint64_t index, int64_t cols);
void DropoutRowAvx2(const DropoutRow& args, uint64_t index, int64_t cols);

}  // namespace octavo::kernels
