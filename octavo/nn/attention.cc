#include "octavo/nn/attention.h"

#include <cmath>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/ops/slice.h"

namespace octavo::nn {

Attention::Attention(const Builder& builder, std::string_view name, const AttentionOptions& options,
                     std::shared_ptr<ops::RopeTable> rope)
    : name_(name), options_(options), rope_(std::move(rope)) {
  const int64_t heads = options.query_heads, kv = options.kv_heads, dim = options.head_dim;
  if (heads < 1 || kv < 1 || heads % kv != 0) {
    ThrowUsage("{}: {} query heads do not divide over {} key heads", builder.path(), heads, kv);
  }
  if (options.layout == QkvLayout::kFusedThree && heads != kv) {
    ThrowUsage("{}: fused_qkv of gpt3 needs as many key heads as query heads, found {} and {}", builder.path(), kv,
               heads);
  }
  const Builder own = builder.Child(name);
  const Shape in{options.emb_dim};
  const Init init{options.law, options.emb_dim, options.init_scale};
  if (options.layout == QkvLayout::kSeparate) {
    Init query = init;
    if (options.query_init_by_depth) query.divisor = std::sqrt(static_cast<double>(dim));
    query_.emplace(own, "query", in, Shape{heads, dim}, query, LinearOptions{options.bias, "query_proj"});
    key_.emplace(own, "key", in, Shape{kv, dim}, init, LinearOptions{options.bias, "key_proj"});
    value_.emplace(own, "value", in, Shape{kv, dim}, init, LinearOptions{options.bias, "value_proj"});
  } else {
    const Shape out = options.layout == QkvLayout::kFusedThree ? Shape{3, heads, dim} : Shape{heads + 2 * kv, dim};
    qkv_.emplace(own, "qkv_proj", in, out, init, LinearOptions{options.bias, "qkv_proj"});
  }
  out_.emplace(own, "out", Shape{heads, dim}, in, Init{options.law, heads * dim, options.init_scale},
               LinearOptions{options.out_bias, "out_proj"});
  if (options.qk_norm) {
    query_norm_ = Norm::Rms(own, "query_norm", dim, options.norm_epsilon, options.qk_norm_with_scale);
    key_norm_ = Norm::Rms(own, "key_norm", dim, options.norm_epsilon, options.qk_norm_with_scale);
  }
  if (options.sinks) sinks_ = own.Make("sinks", {heads}, Init::Zeros());
}

Attention::Heads Attention::Project(ops::Context& context, const ops::Var& x) const {
  if (options_.layout == QkvLayout::kSeparate) {
    const Linear* const layers[] = {&*query_, &*key_, &*value_};
    std::vector<ops::Var> parts = Linear::Each(context, x, layers);
    return {std::move(parts[0]), std::move(parts[1]), std::move(parts[2])};
  }
  const ops::Var qkv = (*qkv_)(context, x);
  const int64_t sizes[] = {options_.query_heads, options_.kv_heads, options_.kv_heads};
  const std::vector<ops::Var> parts =
      options_.layout == QkvLayout::kFusedThree ? ops::Unbind(context, qkv, 2) : ops::Split(context, qkv, 2, sizes);
  return {parts[0], parts[1], parts[2]};
}

ops::Var Attention::operator()(ops::Context& context, const ops::Var& x, const ops::Rows& rows) const {
  const ops::Scope scope(context, name_);
  Heads heads = Project(context, x);
  if (query_norm_) {
    heads.query = (*query_norm_)(context, heads.query);
    heads.key = (*key_norm_)(context, heads.key);
  }
  if (rope_ != nullptr) {
    heads.query = ops::Rope(context, heads.query, rows, *rope_, options_.rope_layout);
    heads.key = ops::Rope(context, heads.key, rows, *rope_, options_.rope_layout);
  }
  ops::AttentionOptions attention;
  attention.scale = options_.scale;
  attention.soft_cap = options_.soft_cap;
  attention.window = options_.window;
  attention.chunk = options_.chunk;
  attention.sinks = sinks_;
  ops::Var mixed;
  {
    const ops::Scope op(context, "attention_op");
    mixed = ops::Attention(context, heads.query, heads.key, heads.value, rows, attention);
  }
  heads = Heads();
  return (*out_)(context, mixed);
}

}  // namespace octavo::nn
