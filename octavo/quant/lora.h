// Low-rank adapters as a provider that wraps the next one: out = base(x) + (alpha / r) · ((x A) B), never merged, in
// training and in serving. Base weights stay as they are, quantized or not. In serving each row of a batch has its own
// adapter (Rows::adapter), and its bits are those it has alone; in training one adapter can be given to all rows, and
// its factors are differentiated.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "octavo/ops/context.h"
#include "octavo/ops/interceptor.h"
#include "octavo/ops/parameter.h"

namespace octavo::quant {

// What one adapter adds to one weight [in..., out...], K and N being the products of the axes.
struct LoraFactors {
  ops::Parameter a;  // f32 [K, r]
  ops::Parameter b;  // f32 [r, N]
  float scale = 1;   // alpha / r, or alpha / sqrt(r)
};

struct LoraAdapter {
  std::string name;
  std::map<std::string, LoraFactors> factors;  // by the name of the weight: "decoder/layers_0/mlp/wo/kernel"

  int64_t bytes() const;
};

class LoraProvider : public ops::Interceptor {
 public:
  // `next` answers what lies below; null: floats. It must outlive this.
  explicit LoraProvider(ops::Interceptor* next = nullptr) : next_(next) {}

  // Gives the adapter a number, from 1 on, never used again. It takes part as long as somebody keeps it. Any thread.
  int Add(const std::shared_ptr<const LoraAdapter>& adapter);
  // The adapter of all rows when the context's Rows say nothing: training, and comparing. 0: none.
  void UseForAll(int number) { for_all_ = number; }

  std::optional<ops::Var> Dot(ops::Context& context, const ops::DotCall& call) override;
  std::optional<std::vector<ops::Var>> Dots(ops::Context& context, std::span<const ops::DotCall> calls) override;
  std::optional<ops::Var> RaggedDot(ops::Context& context, const ops::RaggedCall& call) override;
  bool Answers(const ops::Site& site) const override;
  void Fused(ops::Context& context, const ops::DotCall& call) override;
  std::optional<ops::KvFormat> KvCache(ops::Context& context, const ops::KvCall& call) override;
  void Observe(ops::Context& context, const ops::Site& site, const Tensor& output) override;

 private:
  std::shared_ptr<const LoraAdapter> Find(int number) const;
  bool AnyFor(const std::string& weight) const;

  ops::Interceptor* next_;
  int for_all_ = 0;
  mutable std::mutex mutex_;
  int last_ = 0;
  std::map<int, std::weak_ptr<const LoraAdapter>> adapters_;
};

}  // namespace octavo::quant
