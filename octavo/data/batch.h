// One batch of training or evaluation data in MaxText's layout. Made by a BatchSource (source.h), read by the trainer
// and by evaluation; a plain struct.
#pragma once

#include "octavo/tensor/tensor.h"

namespace octavo::data {

// All i32 [rows, length]. targets[t] is what the model should say after inputs[t]. Tokens of one document in a row have
// the same segment, counted from 1; segment 0 is padding and has weight 0. Positions start at 0 in every segment.
struct Batch {
  Tensor inputs, inputs_position, inputs_segmentation;
  Tensor targets, targets_position, targets_segmentation;
};

// rows × length of zeros: all padding.
Batch EmptyBatch(int64_t rows, int64_t length);

// How many targets count: those with a segment.
int64_t TargetWeights(const Batch& batch);

}  // namespace octavo::data
