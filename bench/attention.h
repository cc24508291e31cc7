// The contenders of `bench attention`: ours, and attention put together from OpenBLAS products as most CPU code does
// it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/common/harness.h"
#include "octavo/base/thread_pool.h"
#include "octavo/kernels/attention.h"

namespace octavo::bench {

struct AttentionBenchShape {
  std::string name, pass, mask, stored;
  int64_t length = 0, heads = 0, kv_heads = 0, qk = 0, v = 0;

  bool causal() const { return mask == "causal"; }
  bool decode() const { return pass == "decode"; }
  // Pairs of a query and a key that it sees, of one head.
  double pairs() const {
    const auto t = static_cast<double>(length);
    if (decode()) return t;
    return causal() ? t * (t + 1) / 2 : t * t;
  }
  double macs() const {
    const auto per_pair = static_cast<double>(pass == "backward" ? 3 * qk + 2 * v : qk + v);
    return pairs() * per_pair * static_cast<double>(heads);
  }
};

// Throws a file Error that names the line.
std::vector<AttentionBenchShape> ReadAttentionShapes(const std::string& path);

struct AttentionBench {
  ThreadPool& pool;
  kernels::Isa isa;
  kernels::Workspace& workspace;
};

// Queries, keys, values and their gradients as [tokens, heads, width] of f32.
struct AttentionData {
  explicit AttentionData(const AttentionBenchShape& shape);
  AttentionBenchShape shape;
  std::vector<float> query, key, value, out, lse, grad_out;
  std::vector<float> grad_query, grad_key, grad_value;
};

// Attention from matrix products: scores of 256 queries at a time, softmax, weighted values. Runs both passes so that
// the results of ours can be compared. Null for shapes it does not cover (decode, shared key heads, stored codes).
class ComposedAttention;
std::shared_ptr<ComposedAttention> MakeComposed(AttentionBench& bench, std::shared_ptr<AttentionData> data);
Contender ComposedContender(const AttentionBenchShape& shape, std::shared_ptr<ComposedAttention> composed);
// Largest difference between our results in `data` and the composed ones, relative to the largest number.
double ComposedDifference(const ComposedAttention& composed, const AttentionData& data);

std::vector<Contender> AttentionContenders(AttentionBench& bench, const AttentionBenchShape& shape);

}  // namespace octavo::bench
