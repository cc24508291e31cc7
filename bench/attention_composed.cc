#include <algorithm>
#include <cmath>

#include "bench/attention.h"
#include "bench/common/peers.h"
#include "octavo/kernels/math_array.h"

namespace octavo::bench {
namespace {

constexpr int64_t kRows = 256;  // queries whose scores are in memory at a time

std::vector<float> HeadMajor(const std::vector<float>& from, int64_t tokens, int64_t heads, int64_t width) {
  std::vector<float> to(from.size());
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t h = 0; h < heads; ++h) {
      std::copy_n(&from[(t * heads + h) * width], width, &to[(h * tokens + t) * width]);
    }
  }
  return to;
}

void AddTo(const std::vector<float>& from, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) to[i] += from[i];
}

}  // namespace

class ComposedAttention {
 public:
  ComposedAttention(AttentionBench& bench, const AttentionData& data)
      : bench_(bench), shape_(data.shape), scale_(1 / std::sqrt(static_cast<float>(data.shape.qk))) {
    const int64_t t = shape_.length, h = shape_.heads;
    query_ = HeadMajor(data.query, t, h, shape_.qk);
    key_ = HeadMajor(data.key, t, h, shape_.qk);
    value_ = HeadMajor(data.value, t, h, shape_.v);
    grad_out_ = HeadMajor(data.grad_out, t, h, shape_.v);
    out_.resize(value_.size());
    lse_.resize(t * h);
    grad_query_.resize(query_.size());
    grad_key_.resize(key_.size());
    grad_value_.resize(value_.size());
    scores_.resize(kRows * t);
    grads_.resize(kRows * t);
    sums_.resize(t * std::max(shape_.qk, shape_.v));
  }

  void Forward() {
    for (int64_t h = 0; h < shape_.heads; ++h) {
      for (int64_t row = 0; row < shape_.length; row += kRows) ForwardRows(h, row);
    }
  }

  void Backward() {
    std::fill(grad_key_.begin(), grad_key_.end(), 0.0f);
    std::fill(grad_value_.begin(), grad_value_.end(), 0.0f);
    for (int64_t h = 0; h < shape_.heads; ++h) {
      for (int64_t row = 0; row < shape_.length; row += kRows) BackwardRows(h, row);
    }
  }

  double Difference(const AttentionData& data) const {
    const int64_t t = shape_.length, h = shape_.heads;
    if (shape_.pass == "forward") return Worst(out_, HeadMajor(data.out, t, h, shape_.v));
    return std::max({Worst(grad_query_, HeadMajor(data.grad_query, t, h, shape_.qk)),
                     Worst(grad_key_, HeadMajor(data.grad_key, t, h, shape_.qk)),
                     Worst(grad_value_, HeadMajor(data.grad_value, t, h, shape_.v))});
  }

 private:
  static double Worst(const std::vector<float>& a, const std::vector<float>& b) {
    double worst = 0, largest = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      worst = std::max<double>(worst, std::abs(a[i] - b[i]));
      largest = std::max<double>(largest, std::abs(a[i]));
    }
    return worst / largest;
  }

  int64_t KeysOf(int64_t row) const { return shape_.causal() ? std::min(row + kRows, shape_.length) : shape_.length; }

  void ForwardRows(int64_t h, int64_t row) {
    const int64_t rows = std::min(kRows, shape_.length - row), keys = KeysOf(row), at = h * shape_.length;
    OpenBlasF32({rows, keys, shape_.qk, false, true}, &query_[(at + row) * shape_.qk], &key_[at * shape_.qk],
                scores_.data());
    bench_.pool.ParallelFor(rows, 16, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        float* z = &scores_[r * keys];
        const int64_t seen = shape_.causal() ? row + r + 1 : keys;
        float top = z[0], sum = 0;
        for (int64_t k = 0; k < seen; ++k) top = std::max(top, z[k]);
        for (int64_t k = 0; k < seen; ++k) z[k] = (z[k] - top) * scale_;
        kernels::ApplyMath(kernels::MathFunction::kExp, bench_.isa, z, z, seen);
        for (int64_t k = 0; k < seen; ++k) sum += z[k];
        for (int64_t k = 0; k < seen; ++k) z[k] /= sum;
        std::fill(z + seen, z + keys, 0.0f);
        lse_[at + row + r] = top * scale_ + std::log(sum);
      }
    });
    OpenBlasF32({rows, shape_.v, keys, false, false}, scores_.data(), &value_[at * shape_.v],
                &out_[(at + row) * shape_.v]);
  }

  void BackwardRows(int64_t h, int64_t row) {
    const int64_t rows = std::min(kRows, shape_.length - row), keys = KeysOf(row), at = h * shape_.length;
    const int64_t qk = shape_.qk, v = shape_.v;
    OpenBlasF32({rows, keys, qk, false, true}, &query_[(at + row) * qk], &key_[at * qk], scores_.data());
    OpenBlasF32({rows, keys, v, false, true}, &grad_out_[(at + row) * v], &value_[at * v], grads_.data());
    bench_.pool.ParallelFor(rows, 16, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        float *z = &scores_[r * keys], *g = &grads_[r * keys];
        const int64_t seen = shape_.causal() ? row + r + 1 : keys, token = at + row + r;
        float d = 0;
        for (int64_t c = 0; c < v; ++c) d += grad_out_[token * v + c] * out_[token * v + c];
        for (int64_t k = 0; k < seen; ++k) z[k] = z[k] * scale_ - lse_[token];
        kernels::ApplyMath(kernels::MathFunction::kExp, bench_.isa, z, z, seen);
        for (int64_t k = 0; k < seen; ++k) g[k] = z[k] * (g[k] - d) * scale_;
        std::fill(z + seen, z + keys, 0.0f);
        std::fill(g + seen, g + keys, 0.0f);
      }
    });
    OpenBlasF32({keys, v, rows, true, false}, scores_.data(), &grad_out_[(at + row) * v], sums_.data());
    AddTo(sums_, keys * v, &grad_value_[at * v]);
    OpenBlasF32({keys, qk, rows, true, false}, grads_.data(), &query_[(at + row) * qk], sums_.data());
    AddTo(sums_, keys * qk, &grad_key_[at * qk]);
    OpenBlasF32({rows, qk, keys, false, false}, grads_.data(), &key_[at * qk], &grad_query_[(at + row) * qk]);
  }

  AttentionBench& bench_;
  AttentionBenchShape shape_;
  float scale_;
  std::vector<float> query_, key_, value_, out_, lse_, grad_out_, grad_query_, grad_key_, grad_value_;
  std::vector<float> scores_, grads_, sums_;
};

std::shared_ptr<ComposedAttention> MakeComposed(AttentionBench& bench, std::shared_ptr<AttentionData> data) {
  const AttentionBenchShape& shape = data->shape;
  if (shape.decode() || shape.heads != shape.kv_heads || shape.stored != "f32") return nullptr;
  return std::make_shared<ComposedAttention>(bench, *data);
}

Contender ComposedContender(const AttentionBenchShape& shape, std::shared_ptr<ComposedAttention> composed) {
  Contender contender;
  contender.name = "OpenBLAS composed";
  contender.family = "f32";
  contender.foreign = true;
  contender.macs = shape.macs();
  const bool backward = shape.pass == "backward";
  if (backward) composed->Forward();  // the backward pass starts from its results
  contender.run = [composed, backward](int64_t) { backward ? composed->Backward() : composed->Forward(); };
  contender.check = [] { return Verdict{true, 0, "taken as it is"}; };
  return contender;
}

double ComposedDifference(const ComposedAttention& composed, const AttentionData& data) {
  return composed.Difference(data);
}

}  // namespace octavo::bench
