// The canonical shards of a batch: contiguous groups of its rows, the unit of training compute. One forward and
// backward pass runs per shard, so that threads, ranks and accumulation steps cannot change a bit.
#pragma once

#include <cstdint>

#include "octavo/data/batch.h"
#include "octavo/ops/rows.h"

namespace octavo::train {

struct ShardBatch {
  Tensor inputs, targets, target_segmentation;  // i32 [rows / shards, length]
  ops::Rows rows;
};

// Shard `index` of `shards`, which divides the rows.
ShardBatch ShardOf(const data::Batch& batch, int64_t index, int64_t shards);

// The shards of one rank and one accumulation step, as a range.
struct ShardRun {
  int64_t begin, end;
};
ShardRun ShardsOf(int64_t shards, int rank, int ranks);

}  // namespace octavo::train
