// The loops behind embedding.h. Plain structs only: an instruction-set unit includes this.
#pragma once

#include <cstdint>

#include "octavo/kernels/rows.h"

namespace octavo::kernels {

// A run of tokens of one id, all of one leaf: rows token[begin] … token[end - 1] of grad_y are added as one chain.
struct ScatterLeaf {
  int64_t begin, end;
  int32_t id;
};

// For each leaf in order, columns of the views given: table[id] += the chain of its rows. `sum` holds `cols` floats.
void ScatterLeavesRef(const ConstRows& grad_y, const int32_t* token, const ScatterLeaf* leaf, int64_t leaves,
                      float* sum, const MutRows& grad_table);
void ScatterLeavesAvx2(const ConstRows& grad_y, const int32_t* token, const ScatterLeaf* leaf, int64_t leaves,
                       float* sum, const MutRows& grad_table);

}  // namespace octavo::kernels
