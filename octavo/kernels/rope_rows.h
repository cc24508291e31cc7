// The arguments of rope.h and the loops behind it and rope_table.h. Plain structs only: an instruction-set unit
// includes this.
#pragma once

#include <cstdint>

#include "octavo/numerics/dtype.h"

namespace octavo::kernels {

// Which two features make pair i of n.
enum class RopeLayout : uint8_t {
  kHalves,         // i and i + n, as llama and most others
  kPairs,          // 2 i and 2 i + 1
  kPairsToHalves,  // read as kPairs, written as kHalves (the gradient reads halves and writes pairs)
};

enum class RopeDirection : uint8_t { kForward, kBackward };

// Element (token, head, feature) is number token * token_stride + head * head_stride + feature of `data`.
struct RopeArgs {
  RopeDirection direction = RopeDirection::kForward;
  RopeLayout layout = RopeLayout::kHalves;
  DType dtype = DType::kF32;  // f32 or bf16
  int64_t tokens = 0, heads = 0, head_dim = 0;
  int64_t rotary_dim = 0;  // the first features of a head; the others are copied
  const void* in = nullptr;
  int64_t in_token_stride = 0, in_head_stride = 0;
  void* out = nullptr;  // may be `in`, with the same strides, except for kPairsToHalves
  int64_t out_token_stride = 0, out_head_stride = 0;
  const int32_t* position = nullptr;  // [tokens]
  const float* cos = nullptr;         // [table_rows, rotary_dim / 2], row 0 is position table_first
  const float* sin = nullptr;
  int64_t table_first = 0, table_rows = 0;
};
void RopeRef(const RopeArgs& args, int64_t begin, int64_t end);  // tokens [begin, end)
void RopeAvx2(const RopeArgs& args, int64_t begin, int64_t end);

struct RopeTableRows {
  const double* inverse;
  double attention_factor;
  int64_t pairs, first;
  float* cos;
  float* sin;
};
void RopeTableRef(const RopeTableRows& args, int64_t begin, int64_t end);
void RopeTableAvx2(const RopeTableRows& args, int64_t begin, int64_t end);

}  // namespace octavo::kernels
