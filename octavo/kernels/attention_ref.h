// The plain loops that define the bits of attention. Every faster version is compared with these. Not for callers:
// attention.h is the door.
#pragma once

#include "octavo/base/thread_pool.h"
#include "octavo/kernels/attention_types.h"

namespace octavo::kernels {

void AttentionForwardReference(ThreadPool& pool, const AttentionCall& call, const AttentionResult& result);
void AttentionBackwardReference(ThreadPool& pool, const AttentionCall& call, const AttentionGradients& gradients);

// One row of `width` numbers as attention sees them.
void ReadKvRow(const KvSide& side, const AttentionSequence& sequence, int64_t head, int64_t k, int64_t width,
               float* out);
void ReadHead(const ConstHeads& heads, int64_t token, int64_t head, int64_t width, float* out);

}  // namespace octavo::kernels
