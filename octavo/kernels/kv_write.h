// Keys and values on their way into a cache: rounded or quantized to the format they are stored in, at the place of
// their position, in pages or one after the other. What attention reads back (attention.h) is what every later step
// sees, the one that wrote it included. Used by ops/.
//
// Bits, for one vector (or all heads of a token when the scale is per token), in the dtype of the input:
//   amax = max |x|;  int8, int4: code = round(fl(x * fl(bound / amax))), saturated;  fp8: the same in f32
//   scale = fl(amax * fl(1 / bound)) for f32 input, fl(amax / bound) for bf16
// A vector of zeros has codes 0 and scale 0. A NaN or infinity makes the scale NaN or infinite, so reading gives NaN.
#pragma once

#include <cstdint>

#include "octavo/base/thread_pool.h"
#include "octavo/kernels/attention_types.h"

namespace octavo::kernels {

struct KvWriteArgs {
  ConstHeads in;  // [tokens, heads, width]
  int64_t heads = 0, width = 0;
  // Where attention will read: strides, format, page tables. The memory itself, writable:
  KvSide side;
  void* data = nullptr;
  float* scale = nullptr;
  // Tokens query_begin … of `in` are keys number position … of their sequence.
  const AttentionSequence* sequences = nullptr;
  int64_t sequence_count = 0;
};

// Formats float32, bfloat16, int8, int4 (packed: the lower four bits first) and float8_e4m3fn; others are usage errors.
void WriteKv(ThreadPool& pool, const KvWriteArgs& args);

}  // namespace octavo::kernels
