// Between the door of attention (attention.cc, which makes the tasks) and the kernels that run them. Plain structs, so
// that instruction-set units may include it. Not for callers.
//
// Rows of a sequence and key head are numbered query * group + head of the group: neighbours see nearly the same keys.
#pragma once

#include <cstdint>

#include "octavo/kernels/attention_types.h"

namespace octavo::kernels {

inline constexpr int64_t kRowBlock = 128;  // most rows of one forward task
inline constexpr int64_t kFewRows = 8;     // up to this many rows a task runs without panels

// Rows [row_begin, row_end) over super-blocks [super_begin, super_end). With `partial` the running softmax of each
// super-block goes there, one after the other, as PartialFloats(shape, rows) floats; without, the rows are finished.
struct ForwardTask {
  const AttentionCall* call = nullptr;
  const AttentionResult* result = nullptr;
  const AttentionSequence* sequence = nullptr;
  int64_t kv_head = 0;
  int64_t row_begin = 0, row_end = 0;
  int64_t super_begin = 0, super_end = 0;
  float* partial = nullptr;
  // All key blocks of the key head as PackKvAvx2 left them, or null: the task reads them itself.
  const float* packed = nullptr;
};

// m[rows], l[rows] (both padded to 16), o[rows, LocalStride(v_dim)].
static inline int64_t PartialFloats(const AttentionShape& shape, int64_t rows) {
  return 2 * RoundUp(rows, 16) + rows * (RoundUp(shape.v_dim, 16) + 16);
}

// Super-blocks that any of the rows may see: the task may leave the others out.
static inline KeyRange VisibleOfRows(const ForwardTask& task) {
  const AttentionShape& shape = task.call->shape;
  const int64_t group = shape.query_heads / shape.kv_heads;
  const int64_t first = task.sequence->position + task.row_begin / group;
  const int64_t last = task.sequence->position + (task.row_end - 1) / group;
  return {VisibleKeys(shape, first, task.sequence->kv_length).begin,
          VisibleKeys(shape, last, task.sequence->kv_length).end};
}

// One key block read once for all tasks of its key head: keys [64, LocalStride(qk_dim)], then values likewise.
static inline int64_t PackedFloats(const AttentionShape& shape) {
  return kKeyBlock * (RoundUp(shape.qk_dim, 16) + 16 + RoundUp(shape.v_dim, 16) + 16);
}
void PackKvAvx2(const AttentionCall& call, const AttentionSequence& sequence, int64_t kv_head, int64_t block,
                float* packed);

// Floats of scratch (aligned to 64 bytes) that one task needs.
int64_t ForwardScratchAvx2(const AttentionShape& shape);
void ForwardRowsAvx2(const ForwardTask& task, float* scratch);

// The same for tasks of at most kFewRows rows; reads the stored keys and values itself.
int64_t FewScratchAvx2(const AttentionShape& shape);
void ForwardFewAvx2(const ForwardTask& task, float* scratch);

// Merges the partial results of the super-blocks of `task`, which lie one after the other in task.partial, and finishes
// the rows.
void MergeRowsAvx2(const ForwardTask& task, float* scratch);

}  // namespace octavo::kernels
