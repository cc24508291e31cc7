// Between the door of attention (attention.cc, which makes the tasks) and the kernels that run them. Plain structs, so
// that instruction-set units may include it. Not for callers.
//
// Rows of a sequence and key head are numbered query * group + head of the group: neighbours see nearly the same keys.
#pragma once

#include <cstdint>

#include "octavo/kernels/attention_tiles.h"
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
  const AttentionTiles* tiles = nullptr;
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

// ---- backward ----
//
// Queries stand in blocks of 64 at positions 64 i …: block b of a unit holds rows 64 b … 64 b + 63, row 0 being the
// position FirstRow(sequence). Rows without a query weigh nothing.

inline constexpr int64_t kQueryBlock = 64;

static inline int64_t FirstRow(const AttentionSequence& sequence) {
  return sequence.position / kQueryBlock * kQueryBlock;
}
static inline int64_t QueryBlocks(const AttentionSequence& sequence) {
  return (RoundUp(sequence.position + sequence.query_count, kQueryBlock) - FirstRow(sequence)) / kQueryBlock;
}
static inline int64_t KeyBlocks(const AttentionSequence& sequence) {
  return RoundUp(sequence.kv_length, kKeyBlock) / kKeyBlock;
}

// The gradients of one sequence and key head.
struct BackwardUnit {
  const AttentionCall* call = nullptr;
  const AttentionGradients* gradients = nullptr;
  int64_t sequence_index = 0;
  int64_t kv_head = 0;
  float* keys = nullptr;   // KeySideFloats: packed blocks, then the sums of grad_key and grad_value
  float* heads = nullptr;  // QuerySideFloats for each head of the group; for one head only when they take turns
  bool one_head = false;
  const AttentionTiles* tiles = nullptr;

  const AttentionSequence& sequence() const { return call->sequences[sequence_index]; }
  int64_t group() const { return call->shape.query_heads / call->shape.kv_heads; }
};

int64_t KeySideFloats(const AttentionShape& shape, const AttentionSequence& sequence);
int64_t QuerySideFloats(const AttentionShape& shape, const AttentionSequence& sequence);
int64_t BackwardScratchAvx2(const AttentionShape& shape);

// Steps, all over ranges of blocks. First the packing:
void PackKeySideAvx2(const BackwardUnit& unit, int64_t begin, int64_t end);
void PackQuerySideAvx2(const BackwardUnit& unit, int64_t head, int64_t begin, int64_t end);
// adds what `head` gives to grad_key and grad_value of key blocks, and with `queries` to grad_query (then the key
// blocks must come in ascending order);
void AddKeyBlocksAvx2(const BackwardUnit& unit, int64_t head, int64_t begin, int64_t end, bool queries, float* scratch);
// or only grad_query of query blocks;
void AddQueryBlocksAvx2(const BackwardUnit& unit, int64_t head, int64_t begin, int64_t end, float* scratch);
// and the results.
void StoreGradKeysAvx2(const BackwardUnit& unit, int64_t begin, int64_t end);
void StoreGradQueriesAvx2(const BackwardUnit& unit, int64_t head, int64_t begin, int64_t end);
void StoreGradSinkAvx2(const BackwardUnit& unit, int64_t head);

}  // namespace octavo::kernels
