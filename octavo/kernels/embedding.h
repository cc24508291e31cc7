// Rows of a table by token id, and the gradient that adds rows back. Used by ops/embedding, and to move rows into
// expert order (permute). The gradient is deterministic: ids in any order, tokens of one id ascending, summed as a
// one-hot matmul would under rule R2 (leaves of 256 tokens inside their sequence, leaves added ascending), bit for bit.
#pragma once

#include <cstdint>

#include "octavo/base/thread_pool.h"
#include "octavo/kernels/isa.h"
#include "octavo/kernels/rows.h"

namespace octavo::kernels {

// out[t, :] = table[id[t], :], cast when the dtypes (f32, bf16) differ.
struct GatherArgs {
  ConstRows table;
  const int32_t* id = nullptr;  // [out.rows], each in 0 … table.rows - 1
  MutRows out;
};
void GatherRows(ThreadPool& pool, Isa isa, const GatherArgs& args);

// grad_table[id[t], :] += grad_y[t, :]. Rows whose id does not occur stay as they are, so a tied head's gradient comes
// first and this is added to it.
struct ScatterArgs {
  ConstRows grad_y;             // [tokens, width], f32 or bf16
  const int32_t* id = nullptr;  // [tokens]
  Sequences sequences;
  MutRows grad_table;  // f32
};
void ScatterAddRows(ThreadPool& pool, Isa isa, const ScatterArgs& args);

}  // namespace octavo::kernels
