// Which rows of a flattened [batch * length] batch belong together: packed segments, padding, and in serving the
// requests of one step. Attention looks inside one sequence only, and sums over tokens restart at each. Made from a
// batch's positions and segment ids, passed down to layers; ops that keep parts of it copy them.
#pragma once

#include <cstdint>
#include <vector>

#include "octavo/tensor/tensor.h"

namespace octavo::ops {

struct KvPages;

// Rows [row_begin, row_begin + length) of the flattened batch. Its first token is position `cached` of the sequence:
// the keys before it are in the pages of Rows::kv, where this call puts its own as well.
struct Sequence {
  int64_t row_begin = 0, length = 0;
  int64_t cached = 0;
  const int32_t* page_table = nullptr;  // pages of the whole sequence; valid during the call
  bool operator==(const Sequence&) const = default;
};

struct Rows {
  int64_t batch = 0, length = 0;    // the model sees hidden [batch, length, E]; the engine uses [1, R]
  std::vector<Sequence> sequences;  // ascending, disjoint, cover all rows; padding is a sequence of its own
  Tensor position;                  // i32 [batch * length]: RoPE and position embedding
  int64_t global_row = 0;           // of row 0 in the global batch [rows * length]: index of noise and dropout
  const KvPages* kv = nullptr;      // serving: where keys and values live; null: each call has all of its sequences
  std::vector<int32_t> adapter;     // serving: one number per row, 0 for the base model; empty: all 0

  int64_t tokens() const { return batch * length; }
  // Where sequences begin, and the number of tokens at the end: i32 [sequences + 1].
  Tensor Starts() const;
};

// positions and segmentation are i32 [B, T]. A run of equal segment ids in a row is one sequence; id 0 is padding. An
// id that comes back later in the same row is a usage error: attention would have to join the two runs.
Rows RowsOfBatch(const Tensor& positions, const Tensor& segmentation);

// `batch` sequences of `length` tokens at positions 0 …: dry runs, and batches without packing.
Rows RowsOfShape(int64_t batch, int64_t length);

}  // namespace octavo::ops
