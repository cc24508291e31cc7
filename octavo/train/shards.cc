#include "octavo/train/shards.h"

#include "octavo/base/check.h"
#include "octavo/base/error.h"

namespace octavo::train {

ShardBatch ShardOf(const data::Batch& batch, int64_t index, int64_t shards) {
  const int64_t rows = batch.inputs.dim(0) / shards, length = batch.inputs.dim(1);
  OCTAVO_CHECK(rows * shards == batch.inputs.dim(0) && index >= 0 && index < shards);
  const auto part = [&](const Tensor& all) { return all.Slice(0, index * rows, (index + 1) * rows).Contiguous(); };
  ShardBatch shard{part(batch.inputs), part(batch.targets), part(batch.targets_segmentation),
                   ops::RowsOfBatch(part(batch.inputs_position), part(batch.inputs_segmentation))};
  shard.rows.global_row = index * rows * length;
  return shard;
}

ShardRun ShardsOf(int64_t shards, int rank, int ranks) {
  if (shards % ranks != 0) {
    throw Error(ErrorCode::kUsage, fmt::format("{} ranks do not divide gradient_shards={}", ranks, shards),
                "every rank takes whole shards");
  }
  const int64_t run = shards / ranks;
  return {rank * run, (rank + 1) * run};
}

}  // namespace octavo::train
