// What attention reads and writes, as plain structs that instruction-set units may include. The functions are in
// attention.h.
#pragma once

#include <cstdint>

#include "octavo/numerics/dtype.h"
#include "octavo/numerics/format.h"

namespace octavo::kernels {

inline constexpr int64_t kKeyBlock = 64;      // keys of one step of the running softmax, and of one page
inline constexpr int64_t kSuperBlock = 1024;  // keys that share one running maximum
inline constexpr int64_t kQueryLeaf = 256;    // queries of one leaf of the gradients of keys and values
inline constexpr int64_t kDotLeaf = 256;      // features of one leaf of a score

// Vectors of [tokens, heads, width], f32 or bf16, contiguous along the width. Element (t, h, c) is number
// t * token_stride + h * head_stride + c of `data`.
struct ConstHeads {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t token_stride = 0, head_stride = 0;
};

struct MutHeads {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t token_stride = 0, head_stride = 0;

  operator ConstHeads() const { return {data, dtype, token_stride, head_stride}; }
};

// All keys, or all values, as they are stored: f32, bf16, f16, or codes of int8, int4 and fp8 with one scale per token
// (scale_head_stride 0) or per token and head. The number that attention sees is fl(decode(code) * scale), or the
// stored float. Strides are in bytes, so that an int4 vector may be packed two to a byte (the lower four bits first).
struct KvSide {
  const void* data = nullptr;
  Format format = Format::kF32;
  bool packed = false;                                       // int4 only: two codes to a byte
  int64_t page_stride = 0, key_stride = 0, head_stride = 0;  // bytes; page_stride with page tables only
  const float* scale = nullptr;                              // null for the float formats
  int64_t scale_page_stride = 0, scale_key_stride = 0, scale_head_stride = 0;  // floats
};

// One sequence: its queries are tokens query_begin … of the query array and stand at positions `position`, … of the
// sequence. Its keys stand at positions 0 … kv_length - 1 and are stored
//   - in pages of 64 keys: key k is entry k % 64 of page page_table[k / 64]; or, without a table,
//   - one after the other: key k is token kv_begin + k.
struct AttentionSequence {
  int64_t query_begin = 0, query_count = 0, position = 0;
  int64_t kv_begin = 0, kv_length = 0;
  const int32_t* page_table = nullptr;
};

// Query head h uses key and value head h / (query_heads / kv_heads). A query at position q sees key k when
//   k < kv_length
//   causal:     k <= q
//   window > 0: q - k < window (so `window` keys with itself), and without causal also k - q < window
//   chunk > 0:  k / chunk >= q / chunk (with causal: only its own chunk)
struct AttentionShape {
  int64_t query_heads = 0, kv_heads = 0;
  int64_t qk_dim = 0, v_dim = 0;
  float scale = 1;
  float soft_cap = 0;  // > 0: scores become soft_cap * tanh(score / soft_cap)
  bool causal = true;
  int64_t window = 0, chunk = 0;
  const float* sinks = nullptr;  // [query_heads]: one more score per head that has no value; null: none
};

struct AttentionCall {
  AttentionShape shape;
  ConstHeads query;  // [tokens, query_heads, qk_dim]
  KvSide key, value;
  const AttentionSequence* sequences = nullptr;
  int64_t sequence_count = 0;
};

// out is [tokens, query_heads, v_dim]; lse is [tokens, query_heads] (token t, head h at t * query_heads + h) or null.
struct AttentionResult {
  MutHeads out;
  float* lse = nullptr;
};

// grad_key and grad_value are indexed by token kv_begin + k and key head, f32 or bf16; grad_sinks is
// [sequence_count, query_heads] or null, so that the caller adds sequences by its own rule.
struct AttentionGradients {
  ConstHeads out;  // as the forward pass stored it
  const float* lse = nullptr;
  ConstHeads grad_out;
  MutHeads grad_query, grad_key, grad_value;
  float* grad_sinks = nullptr;
};

struct KeyRange {
  int64_t begin, end;  // empty when end <= begin
};

// The keys that a query at `position` sees: always one range, whose two ends never fall as the position grows.
static inline KeyRange VisibleKeys(const AttentionShape& shape, int64_t position, int64_t kv_length) {
  KeyRange range{0, kv_length};
  if (shape.causal && position + 1 < range.end) range.end = position + 1;
  if (shape.window > 0) {
    if (position - shape.window + 1 > range.begin) range.begin = position - shape.window + 1;
    if (!shape.causal && position + shape.window < range.end) range.end = position + shape.window;
  }
  if (shape.chunk > 0 && position / shape.chunk * shape.chunk > range.begin) {
    range.begin = position / shape.chunk * shape.chunk;
  }
  return range;
}

static inline int64_t RoundUp(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

// Where key k (or value k) of one head starts, and its scale.
static inline const uint8_t* KvRow(const KvSide& side, const AttentionSequence& sequence, int64_t head, int64_t k) {
  const int64_t base = sequence.page_table == nullptr
                           ? (sequence.kv_begin + k) * side.key_stride
                           : sequence.page_table[k / kKeyBlock] * side.page_stride + k % kKeyBlock * side.key_stride;
  return static_cast<const uint8_t*>(side.data) + base + head * side.head_stride;
}

static inline const float* KvScaleAt(const KvSide& side, const AttentionSequence& sequence, int64_t head, int64_t k) {
  const int64_t base = sequence.page_table == nullptr ? (sequence.kv_begin + k) * side.scale_key_stride
                                                      : sequence.page_table[k / kKeyBlock] * side.scale_page_stride +
                                                            k % kKeyBlock * side.scale_key_stride;
  return side.scale + base + head * side.scale_head_stride;
}

}  // namespace octavo::kernels
