// Self-attention as a module: projections, norms of queries and keys, rotary positions, the attention op, and the way
// out. Separate or fused projections. Multi-head latent attention is its own module.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "octavo/nn/linear.h"
#include "octavo/nn/norm.h"
#include "octavo/ops/attention.h"
#include "octavo/ops/rope.h"
#include "octavo/ops/rows.h"

namespace octavo::nn {

enum class QkvLayout : uint8_t {
  kSeparate,    // query, key, value
  kFusedHeads,  // qkv_proj [E, H + 2 K, D]
  kFusedThree,  // qkv_proj [E, 3, H, D] (gpt3)
};

struct AttentionOptions {
  int64_t emb_dim = 0, query_heads = 0, kv_heads = 0, head_dim = 0;
  QkvLayout layout = QkvLayout::kSeparate;
  bool bias = false, out_bias = false;  // of the projections in, of the one out
  Init::Law law = Init::Law::kTruncatedNormal;
  double init_scale = 1;
  bool query_init_by_depth = true;  // separate query kernels start out divided by sqrt(head_dim)
  bool qk_norm = false, qk_norm_with_scale = true;
  double norm_epsilon = 1e-6;
  bool sinks = false;
  double scale = 1;  // of the scores
  double soft_cap = 0;
  int64_t window = 0, chunk = 0;
  kernels::RopeLayout rope_layout = kernels::RopeLayout::kHalves;
};

class Attention {
 public:
  // `rope` is shared by the layers of a model; null: no rotary positions.
  Attention(const Builder& builder, std::string_view name, const AttentionOptions& options,
            std::shared_ptr<ops::RopeTable> rope);
  ops::Var operator()(ops::Context& context, const ops::Var& x, const ops::Rows& rows) const;  // [B, T, E]

 private:
  struct Heads {
    ops::Var query, key, value;
  };
  Heads Project(ops::Context& context, const ops::Var& x) const;

  std::string name_;
  AttentionOptions options_;
  std::shared_ptr<ops::RopeTable> rope_;
  std::optional<Linear> query_, key_, value_, qkv_, out_;
  std::optional<Norm> query_norm_, key_norm_;
  ops::Parameter* sinks_ = nullptr;
};

}  // namespace octavo::nn
