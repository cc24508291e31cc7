// The provider: answers every dot of a model as the plan says, in training and in serving, and records the gradients.
// One per run; it must outlive the tapes it recorded on. It computes with kernels only, never through ops, so it is
// never asked about its own work. Site lookups are by name: a site that the plan does not know is an error, never a
// float dot.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "octavo/ops/interceptor.h"
#include "octavo/ops/state.h"
#include "octavo/quant/plan.h"
#include "octavo/quant/run.h"
#include "octavo/quant/weight_cache.h"

namespace octavo::quant {

struct ProviderOptions {
  Arithmetic arithmetic = {};
  MacCount* macs = nullptr;      // counts what ran on which kernels
  HealthSink* health = nullptr;  // gets the figures of every operand that is quantized; must outlive the provider
};

// The rows that a served product quantized last: query, key and value read the same ones, and so do the branches of an
// MLP.
struct QuantizedRows {
  Tensor source;  // f32, gapless; holds its memory, so that it is not taken for another tensor
  QArray rows;    // [M, K], a scale per row
};

class Provider : public ops::Interceptor {
 public:
  // `plan` must outlive the provider.
  explicit Provider(const Plan& plan, const ProviderOptions& options = {});

  std::optional<ops::Var> Dot(ops::Context& context, const ops::DotCall& call) override;
  std::optional<std::vector<ops::Var>> Dots(ops::Context& context, std::span<const ops::DotCall> calls) override;
  std::optional<ops::Var> RaggedDot(ops::Context& context, const ops::RaggedCall& call) override;
  bool Answers(const ops::Site& site) const override;
  void Fused(ops::Context& context, const ops::DotCall& call) override;
  std::optional<ops::KvFormat> KvCache(ops::Context& context, const ops::KvCall& call) override;

  // The weights may have changed: forgets what was prepared from them. From the first call on, each weight is quantized
  // and packed once until the next call, however often it is used; without any call, every use prepares it anew.
  void StartStep() { weights_.StartStep(); }
  WeightCache& weights() { return weights_; }

  QuantizedRows& last_rows() { return last_rows_; }
  // What a few rows streamed last. Each product notes what it follows, so that these weights are fetched while a step
  // does something else than reading weights. A model runs its layers in one order: only the first step guesses wrong.
  ServedSite*& last_stream() { return last_stream_; }

  const Plan& plan() const { return plan_; }
  // What the quantized dots run with, in a given context.
  Run RunIn(ops::Context& context, const SitePlan& site);
  // The same for a product whose right operand is `weight`: its panels, if it is frozen.
  Run RunIn(ops::Context& context, const SitePlan& site, const ops::Operand& weight);

 private:
  const SitePlan& Find(const ops::Site& site) const;
  // What is known of a projection that would go the short way again; null: it is to be looked at anew.
  ServedSite* Known(const ops::Context& context, const ops::DotCall& call);

  const Plan& plan_;
  ProviderOptions options_;
  WeightCache weights_;
  QuantizedRows last_rows_;
  ServedSite* last_stream_ = nullptr;  // of weights_, which keeps its addresses
  // Asked several times per product: a hash touches fewer cold lines than a tree.
  std::unordered_map<ops::Site, const SitePlan*, ops::SiteHash> by_site_;
  std::unordered_map<ops::Site, ops::KvFormat, ops::SiteHash> caches_;
};

// A weight as its site's forward pass uses it: what the converter stores and what quantize-on-load makes. The one
// function of both, so the bits are the trainer's. Recipes with delayed scaling take the scale from `state`. A site
// that keeps its weight in float is a usage error.
QArray Freeze(const Run& run, const SitePlan& site, const Tensor& weight, const ops::StateStore* state = nullptr);

// Whether the forward pass of a site quantizes its weight.
bool FreezesWeight(const SitePlan& site);

// The state that follows a step: histories and scales move on by what the step's ops observed. Sites whose state is new
// get their initial state first. Recipes without state change nothing.
void AdvanceState(const Plan& plan, const ops::UpdateSink& observed, ops::StateStore& state);

}  // namespace octavo::quant
