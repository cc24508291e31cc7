#include "octavo/kernels/attention_check.h"

#include <cmath>
#include <limits>

#include "octavo/base/error.h"

namespace octavo::kernels {
namespace {

constexpr int64_t kMostKeys = std::numeric_limits<int32_t>::max() - kSuperBlock;  // positions are int32 in the kernels

void CheckShape(const AttentionShape& shape) {
  if (shape.query_heads < 1 || shape.kv_heads < 1 || shape.query_heads % shape.kv_heads != 0) {
    ThrowUsage("Attention: {} query heads do not divide over {} key heads", shape.query_heads, shape.kv_heads);
  }
  if (shape.qk_dim < 1 || shape.v_dim < 1) {
    ThrowUsage("Attention: head widths must be at least 1, found {} for queries and keys, {} for values", shape.qk_dim,
               shape.v_dim);
  }
  if (!std::isfinite(shape.scale)) ThrowUsage("Attention: scale is {}", shape.scale);
  if (!(shape.soft_cap >= 0) || std::isinf(shape.soft_cap)) {
    ThrowUsage("Attention: soft_cap is {}, expected 0 (none) or a positive number", shape.soft_cap);
  }
  if (shape.window < 0) ThrowUsage("Attention: window is {}, expected 0 (none) or more", shape.window);
  if (shape.chunk < 0) ThrowUsage("Attention: chunk is {}, expected 0 (none) or more", shape.chunk);
}

void CheckHeads(const char* name, const ConstHeads& heads, int64_t tokens, int64_t head_count, int64_t width) {
  if (heads.dtype != DType::kF32 && heads.dtype != DType::kBF16) {
    ThrowUsage("Attention: {} must be f32 or bf16, found {}", name, NameOf(heads.dtype));
  }
  if (tokens == 0) return;
  if (heads.data == nullptr) ThrowUsage("Attention: {} has no data", name);
  if ((tokens > 1 && heads.token_stride < width) || (head_count > 1 && heads.head_stride < width)) {
    ThrowUsage("Attention: {} has strides {} (token) and {} (head) for vectors of {}", name, heads.token_stride,
               heads.head_stride, width);
  }
}

// Bytes of one stored vector.
int64_t BytesOf(const char* name, const KvSide& side, int64_t width) {
  switch (side.format) {
    case Format::kF32:
      return width * 4;
    case Format::kBF16:
    case Format::kF16:
      return width * 2;
    case Format::kInt4:
      return side.packed ? (width + 1) / 2 : width;
    case Format::kInt8:
    case Format::kF8E4M3FN:
    case Format::kF8E5M2:
      return width;
    default:
      throw Error(
          ErrorCode::kUsage,
          fmt::format("Attention: {} are stored as {}, which attention cannot read", name, Info(side.format).name),
          "known: float32 bfloat16 float16 int8 int4 float8_e4m3fn float8_e5m2");
  }
}

void CheckSide(const char* name, const KvSide& side, bool paged, int64_t heads, int64_t width) {
  const int64_t bytes = BytesOf(name, side, width);
  if (side.data == nullptr) ThrowUsage("Attention: {} have no data", name);
  if (side.packed && side.format != Format::kInt4) {
    ThrowUsage("Attention: {} are packed, but stored as {}; only int4 is", name, Info(side.format).name);
  }
  const bool is_float = side.format == Format::kF32 || side.format == Format::kBF16 || side.format == Format::kF16;
  if (is_float && side.scale != nullptr) {
    ThrowUsage("Attention: {} are stored as {} and have scales", name, Info(side.format).name);
  }
  if (!is_float && side.scale == nullptr) {
    ThrowUsage("Attention: {} are stored as {} but have no scales", name, Info(side.format).name);
  }
  if (side.key_stride < bytes || (heads > 1 && side.head_stride < bytes)) {
    ThrowUsage("Attention: {} have strides of {} bytes (key) and {} bytes (head) for vectors of {} bytes", name,
               side.key_stride, side.head_stride, bytes);
  }
  if (paged && side.page_stride < bytes) {
    ThrowUsage("Attention: {} lie in pages with a stride of {} bytes", name, side.page_stride);
  }
}

void CheckSequences(const AttentionCall& call) {
  if (call.sequence_count < 0 || (call.sequence_count > 0 && call.sequences == nullptr)) {
    ThrowUsage("Attention: {} sequences but no list of them", call.sequence_count);
  }
  int64_t tokens = 0;
  bool paged = false, keys = false;
  for (int64_t s = 0; s < call.sequence_count; ++s) {
    const AttentionSequence& one = call.sequences[s];
    if (one.query_begin < 0 || one.query_count < 0 || one.position < 0 || one.kv_begin < 0 || one.kv_length < 0) {
      ThrowUsage("Attention: sequence {} has {} queries from token {} at position {} and {} keys from token {}", s,
                 one.query_count, one.query_begin, one.position, one.kv_length, one.kv_begin);
    }
    if (one.kv_length > kMostKeys || one.position + one.query_count > kMostKeys) {
      ThrowUsage("Attention: sequence {} has {} keys and ends at position {}; at most {} can be addressed", s,
                 one.kv_length, one.position + one.query_count, kMostKeys);
    }
    tokens = one.query_begin + one.query_count > tokens ? one.query_begin + one.query_count : tokens;
    paged = paged || one.page_table != nullptr;
    keys = keys || one.kv_length > 0;
  }
  CheckHeads("query", call.query, tokens, call.shape.query_heads, call.shape.qk_dim);
  if (!keys) return;
  CheckSide("keys", call.key, paged, call.shape.kv_heads, call.shape.qk_dim);
  CheckSide("values", call.value, paged, call.shape.kv_heads, call.shape.v_dim);
}

int64_t QueryTokens(const AttentionCall& call) {
  int64_t tokens = 0;
  for (int64_t s = 0; s < call.sequence_count; ++s) {
    const int64_t end = call.sequences[s].query_begin + call.sequences[s].query_count;
    tokens = end > tokens ? end : tokens;
  }
  return tokens;
}

int64_t KeyTokens(const AttentionCall& call) {
  int64_t tokens = 0;
  for (int64_t s = 0; s < call.sequence_count; ++s) {
    const int64_t end = call.sequences[s].kv_begin + call.sequences[s].kv_length;
    tokens = end > tokens ? end : tokens;
  }
  return tokens;
}

}  // namespace

void CheckAttention(const AttentionCall& call, const AttentionResult& result) {
  CheckShape(call.shape);
  CheckSequences(call);
  CheckHeads("out", result.out, QueryTokens(call), call.shape.query_heads, call.shape.v_dim);
}

void CheckAttention(const AttentionCall& call, const AttentionGradients& gradients) {
  CheckShape(call.shape);
  CheckSequences(call);
  const AttentionShape& shape = call.shape;
  const int64_t tokens = QueryTokens(call), keys = KeyTokens(call);
  CheckHeads("out", gradients.out, tokens, shape.query_heads, shape.v_dim);
  CheckHeads("grad_out", gradients.grad_out, tokens, shape.query_heads, shape.v_dim);
  CheckHeads("grad_query", gradients.grad_query, tokens, shape.query_heads, shape.qk_dim);
  CheckHeads("grad_key", gradients.grad_key, keys, shape.kv_heads, shape.qk_dim);
  CheckHeads("grad_value", gradients.grad_value, keys, shape.kv_heads, shape.v_dim);
  if (tokens > 0 && gradients.lse == nullptr) ThrowUsage("Attention: the backward pass needs the forward pass's lse");
  if (gradients.grad_sinks != nullptr && shape.sinks == nullptr) {
    ThrowUsage("Attention: grad_sinks is asked for, but the shape has no sinks");
  }
}

}  // namespace octavo::kernels
