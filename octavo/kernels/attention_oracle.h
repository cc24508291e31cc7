// Attention and its gradients in double, straight from the formulas: no blocks, no running maximum. For tests.
#pragma once

#include <cmath>
#include <vector>

#include "octavo/kernels/attention_cases.h"

namespace octavo::kernels {

// One sequence and one query head. All matrices row-major: query [T, d], key [S, d], value [S, v].
struct OracleInput {
  AttentionShape shape;
  int64_t position = 0, queries = 0, keys = 0;
  std::vector<double> query, key, value;
  double sink = 0;  // used when shape.sinks is set
};

struct OracleOutput {
  std::vector<double> out, lse;  // [T, v], [T]
};

inline double OracleScore(const OracleInput& in, int64_t i, int64_t k) {
  double z = 0;
  for (int64_t c = 0; c < in.shape.qk_dim; ++c) {
    z += in.query[i * in.shape.qk_dim + c] * in.key[k * in.shape.qk_dim + c];
  }
  z *= in.shape.scale;
  return in.shape.soft_cap > 0 ? in.shape.soft_cap * std::tanh(z / in.shape.soft_cap) : z;
}

inline bool OracleSees(const OracleInput& in, int64_t i, int64_t k) {
  const AttentionShape& s = in.shape;
  const int64_t q = in.position + i;
  if (s.causal && k > q) return false;
  if (s.window > 0 && (q - k >= s.window || (!s.causal && k - q >= s.window))) return false;
  return s.chunk == 0 || k / s.chunk >= q / s.chunk;
}

inline OracleOutput OracleForward(const OracleInput& in) {
  const double inf = std::numeric_limits<double>::infinity();
  OracleOutput result{std::vector<double>(in.queries * in.shape.v_dim), std::vector<double>(in.queries)};
  for (int64_t i = 0; i < in.queries; ++i) {
    std::vector<double> z(in.keys, -inf);
    double top = in.shape.sinks != nullptr ? in.sink : -inf;
    for (int64_t k = 0; k < in.keys; ++k) {
      if (OracleSees(in, i, k)) z[k] = OracleScore(in, i, k);
      top = std::max(top, z[k]);
    }
    if (top == -inf) {
      result.lse[i] = -inf;
      continue;
    }
    double sum = in.shape.sinks != nullptr ? std::exp(in.sink - top) : 0;
    for (int64_t k = 0; k < in.keys; ++k) sum += std::exp(z[k] - top);
    for (int64_t k = 0; k < in.keys; ++k) {
      const double p = std::exp(z[k] - top) / sum;
      for (int64_t c = 0; c < in.shape.v_dim; ++c) {
        result.out[i * in.shape.v_dim + c] += p * in.value[k * in.shape.v_dim + c];
      }
    }
    result.lse[i] = top + std::log(sum);
  }
  return result;
}

struct OracleGradients {
  std::vector<double> query, key, value;
  double sink = 0;
};

// Gradients of sum(grad_out * out), straight from the formulas.
inline OracleGradients OracleBackward(const OracleInput& in, const std::vector<double>& grad_out) {
  const OracleOutput forward = OracleForward(in);
  const AttentionShape& s = in.shape;
  OracleGradients g{std::vector<double>(in.query.size()), std::vector<double>(in.key.size()),
                    std::vector<double>(in.value.size())};
  for (int64_t i = 0; i < in.queries; ++i) {
    double d = 0;
    for (int64_t c = 0; c < s.v_dim; ++c) d += grad_out[i * s.v_dim + c] * forward.out[i * s.v_dim + c];
    if (s.sinks != nullptr) g.sink -= std::exp(in.sink - forward.lse[i]) * d;
    for (int64_t k = 0; k < in.keys; ++k) {
      if (!OracleSees(in, i, k)) continue;
      const double z = OracleScore(in, i, k), p = std::exp(z - forward.lse[i]);
      double dp = 0;
      for (int64_t c = 0; c < s.v_dim; ++c) {
        dp += grad_out[i * s.v_dim + c] * in.value[k * s.v_dim + c];
        g.value[k * s.v_dim + c] += p * grad_out[i * s.v_dim + c];
      }
      double ds = p * (dp - d) * s.scale;
      if (s.soft_cap > 0) ds *= 1 - (z / s.soft_cap) * (z / s.soft_cap);
      for (int64_t c = 0; c < s.qk_dim; ++c) {
        g.query[i * s.qk_dim + c] += ds * in.key[k * s.qk_dim + c];
        g.key[k * s.qk_dim + c] += ds * in.query[i * s.qk_dim + c];
      }
    }
  }
  return g;
}

// What the oracle needs of one sequence and head of a case; keys and values as attention reads them.
inline OracleInput OracleOf(const AttentionCall& call, int64_t s, int64_t head) {
  const AttentionSequence& sequence = call.sequences[s];
  OracleInput in;
  in.shape = call.shape;
  in.position = sequence.position;
  in.queries = sequence.query_count;
  in.keys = sequence.kv_length;
  const int64_t kv_head = head / (call.shape.query_heads / call.shape.kv_heads);
  std::vector<float> row(std::max(call.shape.qk_dim, call.shape.v_dim));
  const auto append = [&](std::vector<double>& to, int64_t width) {
    to.insert(to.end(), row.begin(), row.begin() + width);
  };
  for (int64_t i = 0; i < in.queries; ++i) {
    ReadHead(call.query, sequence.query_begin + i, head, call.shape.qk_dim, row.data());
    append(in.query, call.shape.qk_dim);
  }
  for (int64_t k = 0; k < in.keys; ++k) {
    ReadKvRow(call.key, sequence, kv_head, k, call.shape.qk_dim, row.data());
    append(in.key, call.shape.qk_dim);
    ReadKvRow(call.value, sequence, kv_head, k, call.shape.v_dim, row.data());
    append(in.value, call.shape.v_dim);
  }
  if (call.shape.sinks != nullptr) in.sink = call.shape.sinks[head];
  return in;
}

}  // namespace octavo::kernels
