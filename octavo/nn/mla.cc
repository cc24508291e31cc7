#include "octavo/nn/mla.h"

#include <array>
#include <vector>

#include "octavo/ops/attention.h"
#include "octavo/ops/permute.h"
#include "octavo/ops/slice.h"

namespace octavo::nn {

MlaAttention::MlaAttention(const Builder& builder, std::string_view name, const MlaOptions& o,
                           std::shared_ptr<ops::RopeTable> rope)
    : name_(name),
      options_(o),
      rope_(std::move(rope)),
      wkv_a_(builder.Child(name), "wkv_a", {o.emb_dim}, {o.kv_lora_rank + o.rope_dim},
             DenseInit({o.emb_dim}, o.init_scale), {.save_name = "kv_wa_proj"}),
      kv_norm_(Norm::Rms(builder.Child(name), "kv_norm", o.kv_lora_rank, o.epsilon)),
      wkv_b_(builder.Child(name), "wkv_b", {o.kv_lora_rank}, {o.heads, o.nope_dim + o.v_dim},
             DenseInit({o.kv_lora_rank}, o.init_scale), {.save_name = "mla_kv"}),
      out_(builder.Child(name), "out", {o.heads, o.v_dim}, {o.emb_dim}, DenseInit({o.heads, o.v_dim}, o.init_scale),
           {.save_name = "out_proj"}) {
  const Builder own = builder.Child(name);
  const Shape emb{o.emb_dim}, heads{o.heads, o.nope_dim + o.rope_dim};
  if (o.q_lora_rank > 0) {
    wq_a_.emplace(own, "wq_a", emb, Shape{o.q_lora_rank}, DenseInit(emb, o.init_scale),
                  LinearOptions{.save_name = "query_wa_proj"});
    q_norm_ = Norm::Rms(own, "q_norm", o.q_lora_rank, o.epsilon);
    wq_b_.emplace(own, "wq_b", Shape{o.q_lora_rank}, heads, DenseInit({o.q_lora_rank}, o.init_scale),
                  LinearOptions{.save_name = "mla_q"});
  } else {
    query_.emplace(own, "query", emb, heads, DenseInit(emb, o.init_scale), LinearOptions{.save_name = "mla_q"});
  }
}

ops::Var MlaAttention::Turned(ops::Context& context, const ops::Var& part, const ops::Rows& rows) const {
  const auto layout = options_.interleaved ? kernels::RopeLayout::kPairs : kernels::RopeLayout::kHalves;
  return ops::Rope(context, part, rows, *rope_, layout);
}

// [B, T, heads, nope + rope]
ops::Var MlaAttention::Query(ops::Context& context, const ops::Var& x, const ops::Rows& rows) const {
  const ops::Var query = query_ ? (*query_)(context, x) : (*wq_b_)(context, (*q_norm_)(context, (*wq_a_)(context, x)));
  const std::array<int64_t, 2> sizes = {options_.nope_dim, options_.rope_dim};
  const std::vector<ops::Var> parts = ops::Split(context, query, 3, sizes);
  const std::array<ops::Var, 2> joined = {parts[0], Turned(context, parts[1], rows)};
  return ops::Concat(context, joined, 3);
}

// [B, T, heads, nope + rope] and [B, T, heads, v]
MlaAttention::KeyValue MlaAttention::Expand(ops::Context& context, const ops::Var& x, const ops::Rows& rows) const {
  const MlaOptions& o = options_;
  const std::array<int64_t, 2> low_sizes = {o.kv_lora_rank, o.rope_dim}, head_sizes = {o.nope_dim, o.v_dim};
  const std::vector<ops::Var> low = ops::Split(context, wkv_a_(context, x), 2, low_sizes);
  const ops::Var latent = kv_norm_(context, low[0]);
  const std::vector<ops::Var> heads = ops::Split(context, wkv_b_(context, latent), 3, head_sizes);
  const ops::Var one_head = ops::Reshape(context, low[1], {x.shape()[0], x.shape()[1], 1, o.rope_dim});
  const ops::Var shared = ops::Broadcast(context, Turned(context, one_head, rows), 2, o.heads);
  const std::array<ops::Var, 2> key = {heads[0], shared};
  return {ops::Concat(context, key, 3), heads[1]};
}

ops::Var MlaAttention::operator()(ops::Context& context, const ops::Var& x, const ops::Rows& rows) const {
  const ops::Scope scope(context, name_);
  const ops::Var query = Query(context, x, rows);
  const KeyValue kv = Expand(context, x, rows);
  ops::Var mixed;
  {
    const ops::Scope op(context, "attention_op");
    mixed = ops::Attention(context, query, kv.key, kv.value, rows, {.scale = options_.scale});
  }
  return out_(context, mixed);
}

}  // namespace octavo::nn
