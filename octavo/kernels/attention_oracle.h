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

inline OracleOutput OracleForward(const OracleInput& in) {
  const double inf = std::numeric_limits<double>::infinity();
  OracleOutput result{std::vector<double>(in.queries * in.shape.v_dim), std::vector<double>(in.queries)};
  for (int64_t i = 0; i < in.queries; ++i) {
    std::vector<double> z(in.keys, -inf);
    double top = in.shape.sinks != nullptr ? in.sink : -inf;
    for (int64_t k = 0; k < in.keys; ++k) {
      const int64_t q = in.position + i;
      const AttentionShape& s = in.shape;
      const bool seen = (!s.causal || k <= q) &&
                        (s.window == 0 || (q - k < s.window && (s.causal || k - q < s.window))) &&
                        (s.chunk == 0 || k / s.chunk >= q / s.chunk);
      if (seen) z[k] = OracleScore(in, i, k);
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
