#include "octavo/kernels/attention_ref.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "octavo/kernels/element.h"
#include "octavo/kernels/lanes.h"
#include "octavo/kernels/math.h"
#include "octavo/numerics/format.h"

namespace octavo::kernels {
namespace {

constexpr float kLowest = std::numeric_limits<float>::lowest();
constexpr float kInf = std::numeric_limits<float>::infinity();

uint32_t CodeAt(const KvSide& side, const uint8_t* row, int64_t c) {
  if (side.packed) return row[c / 2] >> (c % 2 * 4) & 15u;
  return row[c];
}

float StoredAt(const KvSide& side, const uint8_t* row, int64_t c) {
  switch (side.format) {
    case Format::kF32:
      return reinterpret_cast<const float*>(row)[c];
    case Format::kBF16:
      return BF16ToF32(reinterpret_cast<const uint16_t*>(row)[c]);
    case Format::kF16:
      return F16ToF32(reinterpret_cast<const uint16_t*>(row)[c]);
    default:
      return Decode(side.format, CodeAt(side, row, c));
  }
}

void WriteHead(const MutHeads& heads, int64_t token, int64_t head, int64_t width, const float* in) {
  const int64_t at = token * heads.token_stride + head * heads.head_stride;
  WithElement(heads.dtype, [&](auto element) {
    using E = decltype(element);
    auto* row = static_cast<typename E::Type*>(heads.data) + at;
    for (int64_t c = 0; c < width; ++c) row[c] = E::Store(in[c]);
  });
}

// Chain over features in leaves.
float Dot(const float* a, const float* b, int64_t width) {
  float sum = 0;
  for (int64_t begin = 0; begin < width; begin += kDotLeaf) {
    float leaf = 0;
    for (int64_t c = begin; c < std::min(begin + kDotLeaf, width); ++c) leaf = Fma(a[c], b[c], leaf);
    sum = begin == 0 ? leaf : sum + leaf;
  }
  return sum;
}

// The keys and values of one sequence and head as f32 matrices.
struct KvRows {
  std::vector<float> key, value;
  KvRows(const AttentionCall& call, const AttentionSequence& sequence, int64_t kv_head) {
    const AttentionShape& shape = call.shape;
    key.resize(sequence.kv_length * shape.qk_dim);
    value.resize(sequence.kv_length * shape.v_dim);
    for (int64_t k = 0; k < sequence.kv_length; ++k) {
      ReadKvRow(call.key, sequence, kv_head, k, shape.qk_dim, &key[k * shape.qk_dim]);
      ReadKvRow(call.value, sequence, kv_head, k, shape.v_dim, &value[k * shape.v_dim]);
    }
  }
};

std::vector<float> ScaledQuery(const AttentionCall& call, int64_t token, int64_t head) {
  std::vector<float> query(call.shape.qk_dim);
  ReadHead(call.query, token, head, call.shape.qk_dim, query.data());
  for (float& q : query) q = q * call.shape.scale;
  return query;
}

// The score before the mask; *tanh is what its gradient needs.
float Score(const AttentionShape& shape, const float* query, const float* key, float* tanh) {
  const float z = Dot(query, key, shape.qk_dim);
  *tanh = 0;
  if (shape.soft_cap <= 0) return z;
  *tanh = Tanh(z * (1.0f / shape.soft_cap));
  return shape.soft_cap * *tanh;
}

// The running softmax of one row: maximum, sum of the exponentials, weighted sum of the values.
struct Running {
  float m = kLowest, l = 0;
  std::vector<float> o;
};

// One block of keys starting at k0; z holds 64 scores, -inf for keys that the row does not see.
void AddBlock(const float* z, const float* value, int64_t keys, int64_t v_dim, Running& row) {
  float m = row.m;
  for (int64_t j = 0; j < kKeyBlock; ++j) m = Max(z[j], m);
  const float c = Exp(row.m - m);
  float p[kKeyBlock];
  LaneSum<float> sum;
  for (int64_t j = 0; j < kKeyBlock; ++j) {
    p[j] = Exp(z[j] - m);
    sum.lane[j % kLanes] = sum.lane[j % kLanes] + p[j];
  }
  row.m = m;
  row.l = Fma(row.l, c, sum.Fold());
  for (int64_t i = 0; i < v_dim; ++i) {
    float chain = 0;
    for (int64_t j = 0; j < keys; ++j) chain = Fma(p[j], value[j * v_dim + i], chain);
    row.o[i] = Fma(row.o[i], c, chain);
  }
}

void Merge(const Running& part, Running& total) {
  const float m = Max(total.m, part.m);
  const float a = Exp(total.m - m), b = Exp(part.m - m);
  total.m = m;
  total.l = Fma(part.l, b, total.l * a);
  for (size_t i = 0; i < total.o.size(); ++i) total.o[i] = Fma(part.o[i], b, total.o[i] * a);
}

void AddSink(float sink, Running& total) {
  const float m = Max(total.m, sink);
  const float a = Exp(total.m - m);
  total.m = m;
  total.l = Fma(total.l, a, Exp(sink - m));
  for (float& o : total.o) o = o * a;
}

// Goes through every block, seen or not: that the fast versions skip some and still agree is the point of the rule.
void AttendRow(const AttentionCall& call, const AttentionSequence& sequence, const KvRows& kv, int64_t head, int64_t i,
               const AttentionResult& result) {
  const AttentionShape& shape = call.shape;
  const int64_t token = sequence.query_begin + i;
  const std::vector<float> query = ScaledQuery(call, token, head);
  const KeyRange seen = VisibleKeys(shape, sequence.position + i, sequence.kv_length);
  Running total{kLowest, 0, std::vector<float>(shape.v_dim)};
  for (int64_t super = 0; super < sequence.kv_length; super += kSuperBlock) {
    Running part{kLowest, 0, std::vector<float>(shape.v_dim)};
    for (int64_t k0 = super; k0 < std::min(super + kSuperBlock, sequence.kv_length); k0 += kKeyBlock) {
      float z[kKeyBlock], tanh;
      for (int64_t j = 0; j < kKeyBlock; ++j) {
        const bool visible = k0 + j >= seen.begin && k0 + j < seen.end;
        z[j] = visible ? Score(shape, query.data(), &kv.key[(k0 + j) * shape.qk_dim], &tanh) : -kInf;
      }
      AddBlock(z, &kv.value[k0 * shape.v_dim], std::min(kKeyBlock, sequence.kv_length - k0), shape.v_dim, part);
    }
    Merge(part, total);
  }
  if (shape.sinks != nullptr) AddSink(shape.sinks[head], total);
  for (float& o : total.o) o = total.l == 0 ? 0.0f : o / total.l + 0.0f;
  WriteHead(result.out, token, head, shape.v_dim, total.o.data());
  if (result.lse == nullptr) return;
  result.lse[token * shape.query_heads + head] = total.l == 0 ? -kInf : total.m + Log(total.l);
}

// p and ds of all queries of one head, [query_count, kv_length] each, and D of each query.
struct Weights {
  std::vector<float> p, ds, d;
};

Weights WeightsOf(const AttentionCall& call, const AttentionSequence& sequence, const KvRows& kv, int64_t head,
                  const AttentionGradients& gradients) {
  const AttentionShape& shape = call.shape;
  const int64_t keys = sequence.kv_length;
  Weights w{std::vector<float>(sequence.query_count * keys), std::vector<float>(sequence.query_count * keys),
            std::vector<float>(sequence.query_count)};
  std::vector<float> out(shape.v_dim), grad(shape.v_dim);
  for (int64_t i = 0; i < sequence.query_count; ++i) {
    const int64_t token = sequence.query_begin + i;
    ReadHead(gradients.out, token, head, shape.v_dim, out.data());
    ReadHead(gradients.grad_out, token, head, shape.v_dim, grad.data());
    LaneSum<float> sum;
    for (int64_t c = 0; c < shape.v_dim; ++c) sum.lane[c % kLanes] = Fma(grad[c], out[c], sum.lane[c % kLanes]);
    w.d[i] = sum.Fold();
    const std::vector<float> query = ScaledQuery(call, token, head);
    const float lse = gradients.lse[token * shape.query_heads + head];
    const KeyRange seen = VisibleKeys(shape, sequence.position + i, keys);
    for (int64_t k = seen.begin; k < seen.end; ++k) {
      float tanh;
      const float z = Score(shape, query.data(), &kv.key[k * shape.qk_dim], &tanh);
      const float p = Exp(z - lse);
      const float dp = Dot(&kv.value[k * shape.v_dim], grad.data(), shape.v_dim);
      float ds = p * (dp - w.d[i]);
      if (shape.soft_cap > 0) ds = ds * Fma(-tanh, tanh, 1.0f);
      w.p[i * keys + k] = p;
      w.ds[i * keys + k] = ds;
    }
  }
  return w;
}

void GradQuery(const AttentionCall& call, const AttentionSequence& sequence, const KvRows& kv, const Weights& w,
               int64_t head, const AttentionGradients& gradients) {
  const int64_t keys = sequence.kv_length, width = call.shape.qk_dim;
  std::vector<float> row(width);
  for (int64_t i = 0; i < sequence.query_count; ++i) {
    for (int64_t c = 0; c < width; ++c) {
      float sum = 0;
      for (int64_t k0 = 0; k0 < keys; k0 += kKeyBlock) {
        float leaf = 0;
        for (int64_t k = k0; k < std::min(k0 + kKeyBlock, keys); ++k) {
          leaf = Fma(w.ds[i * keys + k], kv.key[k * width + c], leaf);
        }
        sum = sum + leaf;
      }
      row[c] = sum * call.shape.scale + 0.0f;
    }
    WriteHead(gradients.grad_query, sequence.query_begin + i, head, width, row.data());
  }
}

// total[k, c] += leaves over the queries of weights[i, k] * rows[i, c].
void AddOverQueries(const AttentionSequence& sequence, const std::vector<float>& weights,
                    const std::vector<float>& rows, int64_t width, std::vector<float>& total) {
  const int64_t keys = sequence.kv_length;
  for (int64_t begin = 0; begin < sequence.query_count;) {
    const int64_t position = sequence.position + begin;
    const int64_t leaf_end = (position / kQueryLeaf + 1) * kQueryLeaf - sequence.position;
    const int64_t end = std::min(leaf_end, sequence.query_count);
    for (int64_t k = 0; k < keys; ++k) {
      for (int64_t c = 0; c < width; ++c) {
        float leaf = 0;
        for (int64_t i = begin; i < end; ++i) leaf = Fma(weights[i * keys + k], rows[i * width + c], leaf);
        total[k * width + c] = total[k * width + c] + leaf;
      }
    }
    begin = end;
  }
}

float GradSink(const AttentionSequence& sequence, const Weights& w, float sink, const float* lse, int64_t stride) {
  float sum = 0, leaf = 0;
  for (int64_t i = 0; i < sequence.query_count; ++i) {
    leaf = Fma(-Exp(sink - lse[i * stride]), w.d[i], leaf);
    if ((sequence.position + i + 1) % kQueryLeaf == 0 || i + 1 == sequence.query_count) {
      sum = sum + leaf;
      leaf = 0;
    }
  }
  return sum + 0.0f;
}

void BackwardOfKvHead(const AttentionCall& call, int64_t s, int64_t kv_head, const AttentionGradients& gradients) {
  const AttentionShape& shape = call.shape;
  const AttentionSequence& sequence = call.sequences[s];
  const KvRows kv(call, sequence, kv_head);
  const int64_t group = shape.query_heads / shape.kv_heads;
  std::vector<float> grad_key(sequence.kv_length * shape.qk_dim), grad_value(sequence.kv_length * shape.v_dim);
  for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const Weights w = WeightsOf(call, sequence, kv, head, gradients);
    std::vector<float> queries, grads(sequence.query_count * shape.v_dim);
    for (int64_t i = 0; i < sequence.query_count; ++i) {
      const std::vector<float> query = ScaledQuery(call, sequence.query_begin + i, head);
      queries.insert(queries.end(), query.begin(), query.end());
      ReadHead(gradients.grad_out, sequence.query_begin + i, head, shape.v_dim, &grads[i * shape.v_dim]);
    }
    GradQuery(call, sequence, kv, w, head, gradients);
    AddOverQueries(sequence, w.p, grads, shape.v_dim, grad_value);
    AddOverQueries(sequence, w.ds, queries, shape.qk_dim, grad_key);
    if (gradients.grad_sinks != nullptr) {
      gradients.grad_sinks[s * shape.query_heads + head] =
          GradSink(sequence, w, shape.sinks[head], gradients.lse + sequence.query_begin * shape.query_heads + head,
                   shape.query_heads);
    }
  }
  for (float& g : grad_key) g = g + 0.0f;
  for (float& g : grad_value) g = g + 0.0f;
  for (int64_t k = 0; k < sequence.kv_length; ++k) {
    const int64_t token = sequence.kv_begin + k;
    WriteHead(gradients.grad_key, token, kv_head, shape.qk_dim, &grad_key[k * shape.qk_dim]);
    WriteHead(gradients.grad_value, token, kv_head, shape.v_dim, &grad_value[k * shape.v_dim]);
  }
}

}  // namespace

void ReadKvRow(const KvSide& side, const AttentionSequence& sequence, int64_t head, int64_t k, int64_t width,
               float* out) {
  const uint8_t* row = KvRow(side, sequence, head, k);
  for (int64_t c = 0; c < width; ++c) out[c] = StoredAt(side, row, c);
  if (side.scale == nullptr) return;
  const float scale = *KvScaleAt(side, sequence, head, k);
  for (int64_t c = 0; c < width; ++c) out[c] = out[c] * scale;
}

void ReadHead(const ConstHeads& heads, int64_t token, int64_t head, int64_t width, float* out) {
  const int64_t at = token * heads.token_stride + head * heads.head_stride;
  WithElement(heads.dtype, [&](auto element) {
    using E = decltype(element);
    const auto* row = static_cast<const typename E::Type*>(heads.data) + at;
    for (int64_t c = 0; c < width; ++c) out[c] = E::Load(row[c]);
  });
}

void AttentionForwardReference(ThreadPool& pool, const AttentionCall& call, const AttentionResult& result) {
  const AttentionShape& shape = call.shape;
  const int64_t group = shape.query_heads / shape.kv_heads;
  pool.ParallelFor(call.sequence_count * shape.kv_heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; ++at) {
      const AttentionSequence& sequence = call.sequences[at / shape.kv_heads];
      const int64_t kv_head = at % shape.kv_heads;
      const KvRows kv(call, sequence, kv_head);
      for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        for (int64_t i = 0; i < sequence.query_count; ++i) AttendRow(call, sequence, kv, head, i, result);
      }
    }
  });
}

void AttentionBackwardReference(ThreadPool& pool, const AttentionCall& call, const AttentionGradients& gradients) {
  const int64_t heads = call.shape.kv_heads;
  pool.ParallelFor(call.sequence_count * heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; ++at) BackwardOfKvHead(call, at / heads, at % heads, gradients);
  });
}

}  // namespace octavo::kernels
