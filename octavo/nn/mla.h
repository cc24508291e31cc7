// Multi-head latent attention (DeepSeek V2, section 2.1): keys and values of all heads come from one narrow latent
// vector per token, and a rotary part of the key that all heads share. Queries may come through a narrow vector too.
// Used by models/deepseek. One form for training and serving: keys and values are expanded.
//
//   query   q_lora_rank > 0: wq_b(q_norm(wq_a(x))), else query(x);   a head is [nope | rope], the rope part turned
//   latent  wkv_a(x) = [latent | rope part of the key, turned];      wkv_b(kv_norm(latent)): a head is [nope | value]
//   key     a head is [nope | the shared rope part]
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "octavo/nn/linear.h"
#include "octavo/nn/norm.h"
#include "octavo/ops/rope.h"
#include "octavo/ops/rows.h"

namespace octavo::nn {

struct MlaOptions {
  int64_t emb_dim = 0, heads = 0;
  int64_t q_lora_rank = 0, kv_lora_rank = 0;
  int64_t nope_dim = 0, rope_dim = 0, v_dim = 0;
  double epsilon = 1e-6;
  double scale = 1;         // of the scores
  bool interleaved = true;  // rope pairs neighbours
  double init_scale = 1;
};

class MlaAttention {
 public:
  // `rope` turns rope_dim features; the layers of a model share it.
  MlaAttention(const Builder& builder, std::string_view name, const MlaOptions& options,
               std::shared_ptr<ops::RopeTable> rope);
  ops::Var operator()(ops::Context& context, const ops::Var& x, const ops::Rows& rows) const;  // [B, T, E]

 private:
  struct KeyValue {
    ops::Var key, value;
  };
  ops::Var Query(ops::Context& context, const ops::Var& x, const ops::Rows& rows) const;
  KeyValue Expand(ops::Context& context, const ops::Var& x, const ops::Rows& rows) const;
  ops::Var Turned(ops::Context& context, const ops::Var& part, const ops::Rows& rows) const;

  std::string name_;
  MlaOptions options_;
  std::shared_ptr<ops::RopeTable> rope_;
  std::optional<Linear> wq_a_, wq_b_;  // with q_lora_rank
  std::optional<Norm> q_norm_;
  std::optional<Linear> query_;  // without
  Linear wkv_a_;
  Norm kv_norm_;
  Linear wkv_b_, out_;
};

}  // namespace octavo::nn
