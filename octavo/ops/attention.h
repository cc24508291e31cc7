// Attention over the sequences of a batch, with gradients: grouped heads, causal, windows, chunks, soft cap, sinks;
// values may be narrower or wider than keys. Heads are read where they lie (strided), nothing is permuted or copied.
// The bits are those of kernels/attention.h: a row depends on its own sequence only.
#pragma once

#include <cstdint>
#include <string_view>

#include "octavo/ops/context.h"
#include "octavo/ops/parameter.h"
#include "octavo/ops/rows.h"
#include "octavo/ops/var.h"

namespace octavo::ops {

struct AttentionOptions {
  double scale = 1;  // of the scores
  double soft_cap = 0;
  bool causal = true;
  int64_t window = 0, chunk = 0;
  const Parameter* sinks = nullptr;        // [query heads]
  std::string_view save_name = "context";  // under which remat may keep the output
};

// query [B, T, H, D], key [B, T, K, D], value [B, T, K, V] -> [B, T, H, V]. Query head h uses key head h / (H / K).
// The two products are the sites einsum0 and einsum1 of the current module; they are computed inside.
Var Attention(Context& context, const Var& query, const Var& key, const Var& value, const Rows& rows,
              const AttentionOptions& options);

}  // namespace octavo::ops
