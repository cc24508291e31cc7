#include "octavo/ops/attention.h"

#include <utility>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/kernels/attention.h"
#include "octavo/kernels/kv_write.h"
#include "octavo/ops/dot.h"
#include "octavo/ops/elementwise.h"
#include "octavo/ops/interceptor.h"
#include "octavo/ops/op_support.h"
#include "octavo/ops/profile.h"
#include "octavo/ops/remat.h"
#include "octavo/ops/tape.h"

namespace octavo::ops {
namespace {

// Tokens must have one stride and features must be together; heads may lie apart.
Tensor AsHeads(const Tensor& x) {
  const bool features = x.dim(3) <= 1 || x.stride(3) == 1;
  const bool tokens = x.dim(0) <= 1 || x.dim(1) <= 1 || x.stride(0) == x.stride(1) * x.dim(1);
  const bool apart = (x.dim(2) <= 1 || x.stride(2) >= x.dim(3)) && (x.dim(1) <= 1 || x.stride(1) >= x.dim(3));
  return features && tokens && apart ? x : x.Contiguous();
}

int64_t TokenStride(const Tensor& x) { return x.dim(1) > 1 ? x.stride(1) : x.stride(0); }

kernels::ConstHeads ConstHeadsOf(const Tensor& x) { return {DataOf(x), x.dtype(), TokenStride(x), x.stride(2)}; }

kernels::MutHeads MutHeadsOf(Tensor& x) { return {MutDataOf(x), x.dtype(), x.dim(2) * x.dim(3), x.dim(3)}; }

kernels::KvSide SideOf(const Tensor& x) {
  kernels::KvSide side;
  side.data = DataOf(x);
  side.format = x.dtype() == DType::kF32 ? Format::kF32 : Format::kBF16;
  const int64_t bytes = SizeOf(x.dtype());
  side.key_stride = std::max(TokenStride(x), x.dim(3)) * bytes;
  side.head_stride = std::max(x.stride(2), x.dim(3)) * bytes;
  return side;
}

// Keys or values as attention reads them: the tensor itself, stored codes of this call, or pages of a cache.
struct Stored {
  Tensor codes, scales;  // what keeps `side` alive, if anything
  kernels::KvSide side;
};

// What both directions read; copied into the backward function.
struct Inputs {
  AttentionOptions options;
  Tensor query, key, value, sinks;
  std::vector<kernels::AttentionSequence> sequences;
  Stored stored_key, stored_value;

  kernels::AttentionCall Call() const {
    kernels::AttentionCall call;
    call.shape.query_heads = query.dim(2);
    call.shape.kv_heads = key.dim(2);
    call.shape.qk_dim = query.dim(3);
    call.shape.v_dim = value.dim(3);
    call.shape.scale = static_cast<float>(options.scale);
    call.shape.soft_cap = static_cast<float>(options.soft_cap);
    call.shape.causal = options.causal;
    call.shape.window = options.window;
    call.shape.chunk = options.chunk;
    call.shape.sinks = sinks.defined() ? sinks.Data<float>() : nullptr;
    call.query = ConstHeadsOf(query);
    call.key = stored_key.side;
    call.value = stored_value.side;
    call.sequences = sequences.data();
    call.sequence_count = static_cast<int64_t>(sequences.size());
    return call;
  }
  // Multiply-adds of one product of queries and keys, and of probabilities and values.
  double Macs() const {
    double pairs = 0;
    for (const kernels::AttentionSequence& one : sequences) {
      const double n = static_cast<double>(one.query_count), before = static_cast<double>(one.position);
      pairs += options.causal ? n * before + n * (n + 1) / 2 : n * (before + n);
    }
    return pairs * static_cast<double>(query.dim(2) * (query.dim(3) + value.dim(3)));
  }
};

void CheckShapes(const Context& context, const Var& query, const Var& key, const Var& value, const Rows& rows) {
  const Shape &q = query.shape(), &k = key.shape(), &v = value.shape();
  const bool fits = q.rank() == 4 && k.rank() == 4 && v.rank() == 4 && q[0] * q[1] == rows.tokens() && q[0] == k[0] &&
                    q[1] == k[1] && q[3] == k[3] && v[0] == k[0] && v[1] == k[1] && v[2] == k[2] && k[2] > 0 &&
                    q[2] % k[2] == 0;
  if (!fits) {
    ThrowUsage(
        "Attention at {}: query {}, key {}, value {} for {} tokens: expected [B, T, H, D], [B, T, K, D] and "
        "[B, T, K, V] with K dividing H",
        context.path(), q, k, v, rows.tokens());
  }
  for (const Sequence& sequence : rows.sequences) {
    if (rows.kv == nullptr && sequence.cached != 0) {
      ThrowUsage("Attention at {}: a sequence has cached keys, but no pages", context.path());
    }
  }
}

// The sites of the two products, with the shapes the reference has: keys' heads apart from their group.
void AnnounceSites(Context& context, const Var& query, const Var& key, const Var& value) {
  const Site scores = context.NextSite(OpKind::kEinsum), mix = context.NextSite(OpKind::kEinsum);
  if (context.interceptor == nullptr) return;
  const Interceptor& asked = *context.interceptor;
  if (context.tape == nullptr && !asked.Answers(scores) && !asked.Answers(mix)) return;
  const Shape &q = query.shape(), &k = key.shape();
  const int64_t group = q[2] / k[2];
  const auto activation = [](const Shape& shape, DType dtype, NodeId node) {
    return Operand{Tensor::Meta(shape, dtype), Role::kActivation, nullptr, node};
  };
  const Operand grouped = activation({q[0], q[1], k[2], group, q[3]}, query.dtype(), query.node);
  const Operand keys = activation(k, key.dtype(), key.node),
                values = activation(value.shape(), value.dtype(), value.node);
  const Operand weights = activation({q[0], k[2], group, q[1], k[1]}, query.dtype(), query.node);
  AnnounceEinsum(context, scores, "btkgd,bskd->bkgts", grouped, keys);
  AnnounceEinsum(context, mix, "bkgts,bskd->btkgd", weights, values);
}

std::vector<Tensor> Gradients(Context& back, const Inputs& inputs, const Tensor& out, const Tensor& lse,
                              const Tensor& grad) {
  const Tensor grad_out = AsHeads(grad);
  Tensor grad_query = Tensor::Empty(inputs.query.shape(), inputs.query.dtype());
  Tensor grad_key = Tensor::Empty(inputs.key.shape(), inputs.key.dtype());
  Tensor grad_value = Tensor::Empty(inputs.value.shape(), inputs.value.dtype());
  const int64_t heads = inputs.query.dim(2), sequences = static_cast<int64_t>(inputs.sequences.size());
  std::vector<float> sink_parts(inputs.sinks.defined() ? static_cast<size_t>(sequences * heads) : 0);
  kernels::AttentionGradients args;
  args.out = ConstHeadsOf(out);
  args.lse = lse.Data<float>();
  args.grad_out = ConstHeadsOf(grad_out);
  args.grad_query = MutHeadsOf(grad_query);
  args.grad_key = MutHeadsOf(grad_key);
  args.grad_value = MutHeadsOf(grad_value);
  args.grad_sinks = sink_parts.empty() ? nullptr : sink_parts.data();
  kernels::AttentionBackward(back.pool, back.isa, back.workspace, inputs.Call(), args);
  std::vector<Tensor> grads = {grad_query, grad_key, grad_value};
  if (inputs.sinks.defined()) {
    Tensor grad_sinks = Tensor::Zeros({heads}, DType::kF32);
    const auto sums = grad_sinks.MutableValues<float>();
    for (int64_t s = 0; s < sequences; ++s) {
      for (int64_t h = 0; h < heads; ++h)
        sums[static_cast<size_t>(h)] += sink_parts[static_cast<size_t>(s * heads + h)];
    }
    grads.push_back(grad_sinks);
  }
  return grads;
}

kernels::KvWriteArgs WriteArgs(const Tensor& heads, const kernels::KvSide& side,
                               const std::vector<kernels::AttentionSequence>& sequences) {
  kernels::KvWriteArgs args;
  args.in = ConstHeadsOf(heads);
  args.heads = heads.dim(2);
  args.width = heads.dim(3);
  args.side = side;
  args.sequences = sequences.data();
  args.sequence_count = static_cast<int64_t>(sequences.size());
  return args;
}

// A side of the cache of this layer, with the new tokens written into it.
Stored InPages(Context& context, const KvFormat& format, const KvSidePages& pages, const Tensor& heads,
               const std::vector<kernels::AttentionSequence>& sequences) {
  if (pages.heads != heads.dim(2) || pages.width != heads.dim(3)) {
    ThrowUsage("Attention at {}: pages hold {} heads of {}, found {}", context.path(), pages.heads, pages.width,
               heads.shape());
  }
  Stored stored{{}, {}, KvSideOf(format, pages)};
  kernels::KvWriteArgs args = WriteArgs(heads, stored.side, sequences);
  args.data = pages.data;
  args.scale = pages.scale;
  kernels::WriteKv(context.pool, args);
  return stored;
}

// The same numbers without a cache: codes of this call's tokens only.
Stored InTokens(Context& context, const KvFormat& format, const Tensor& heads,
                const std::vector<kernels::AttentionSequence>& sequences) {
  const int64_t tokens = heads.dim(0) * heads.dim(1), count = heads.dim(2), width = heads.dim(3);
  const kernels::KvSide shape = KvSideOfTokens(format, count, width, nullptr, nullptr);
  Stored stored;
  stored.codes = Tensor::Empty({tokens * shape.key_stride}, DType::kU8);
  auto* data = stored.codes.MutableData<uint8_t>();
  float* scale = nullptr;
  if (format.quantized()) {
    stored.scales = Tensor::Empty({tokens * shape.scale_key_stride}, DType::kF32);
    scale = stored.scales.MutableData<float>();
  }
  stored.side = KvSideOfTokens(format, count, width, reinterpret_cast<std::byte*>(data), scale);
  kernels::KvWriteArgs args = WriteArgs(heads, stored.side, sequences);
  args.data = data;
  args.scale = scale;
  kernels::WriteKv(context.pool, args);
  return stored;
}

std::vector<kernels::AttentionSequence> SequencesOf(const Rows& rows) {
  std::vector<kernels::AttentionSequence> result;
  for (const Sequence& one : rows.sequences) {
    kernels::AttentionSequence sequence;
    sequence.query_begin = one.row_begin;
    sequence.query_count = one.length;
    sequence.position = one.cached;
    sequence.kv_length = one.cached + one.length;
    if (rows.kv == nullptr) sequence.kv_begin = one.row_begin;
    sequence.page_table = rows.kv == nullptr ? nullptr : one.page_table;
    result.push_back(sequence);
  }
  return result;
}

Format FormatOf(DType dtype) { return dtype == DType::kF32 ? Format::kF32 : Format::kBF16; }

// Keys and values go to the cache first, and attention reads what is stored: prefill and decode see the same numbers.
void Store(Context& context, const Rows& rows, const std::optional<KvFormat>& format, Inputs& inputs) {
  if (rows.kv != nullptr) {
    const auto at = rows.kv->layers.find(context.path());
    if (at == rows.kv->layers.end()) ThrowUsage("Attention at {}: the cache has no such layer", context.path());
    if (format && *format != rows.kv->format) {
      ThrowUsage("Attention at {}: the plan stores keys and values as {}, the cache as {}", context.path(),
                 Info(format->format).name, Info(rows.kv->format.format).name);
    }
    inputs.stored_key = InPages(context, rows.kv->format, at->second.key, inputs.key, inputs.sequences);
    inputs.stored_value = InPages(context, rows.kv->format, at->second.value, inputs.value, inputs.sequences);
    return;
  }
  const auto stored = [&](const Tensor& heads) {
    if (!format || format->format == FormatOf(heads.dtype())) return Stored{{}, {}, SideOf(heads)};
    return InTokens(context, *format, heads, inputs.sequences);
  };
  inputs.stored_key = stored(inputs.key);
  inputs.stored_value = stored(inputs.value);
}

}  // namespace

Var Attention(Context& context, const Var& query, const Var& key, const Var& value, const Rows& rows,
              const AttentionOptions& options) {
  CheckFloat("Attention", query.value);
  CheckShapes(context, query, key, value, rows);
  AnnounceSites(context, query, key, value);
  std::optional<KvFormat> format;
  if (context.interceptor != nullptr) {
    format = context.interceptor->KvCache(context, {context.NextSite(OpKind::kKvCache), key.value, value.value});
  }
  Var sinks;
  if (options.sinks != nullptr) sinks = ParameterAs(context, *options.sinks, DType::kF32);
  std::vector<NodeId> nodes = {query.node, key.node, value.node};
  if (options.sinks != nullptr) nodes.push_back(sinks.node);
  const Shape shape{query.value.dim(0), query.value.dim(1), query.value.dim(2), value.value.dim(3)};
  if (query.value.is_meta()) {
    return RecordOutput(context, Tensor::Meta(shape, query.dtype()), {query.node, key.node, value.node});
  }
  Inputs inputs{
      options, AsHeads(query.value), AsHeads(key.value), AsHeads(value.value), sinks.value, SequencesOf(rows), {}, {}};
  Store(context, rows, format, inputs);
  const std::string save_name(options.save_name);
  std::vector<Tensor> kept = Recall(context, save_name);
  if (kept.empty()) {
    Tensor out = Tensor::Empty(shape, query.dtype());
    Tensor lse = Tensor::Empty({rows.tokens(), shape[2]}, DType::kF32);
    const Timed timed(context.profile, context.path(), "attention", "forward", inputs.Macs());
    kernels::AttentionForward(context.pool, context.isa, context.workspace, inputs.Call(),
                              {MutHeadsOf(out), lse.MutableData<float>()});
    kept = {std::move(out), std::move(lse)};
    Keep(context, save_name, kept);
  } else {
    context.tape->CountSkipped();
  }
  if (context.tape == nullptr) return Var(std::move(kept[0]));
  return context.tape->Record(kept[0], nodes,
                              [inputs = std::move(inputs), out = kept[0], lse = kept[1], path = context.path()](
                                  Context& back, const Tensor& grad) {
                                const Timed timed(back.profile, path, "attention", "backward", 2.5 * inputs.Macs());
                                return Gradients(back, inputs, out, lse, grad);
                              });
}

}  // namespace octavo::ops
