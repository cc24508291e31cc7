// Watches the outputs of a model's dots on behalf of a comparison: two probes on two runs in lock step give, for each
// site, how far the second model's outputs lie from the first's. Wraps the provider that answers the dots. Holds the
// outputs of at most one layer.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "octavo/ops/context.h"
#include "octavo/ops/interceptor.h"

namespace octavo::eval {

struct SiteError {
  std::string site;              // "decoder/layers_7/mlp/wo"; the op too where a module has several
  double signal = 0, noise = 0;  // sums of a^2 and (a - b)^2

  // Signal to noise in dB, with the error that came in with the inputs; infinite when the outputs are equal.
  double Sqnr() const;
};

class SiteErrors {
 public:
  // Adds one pair of outputs of equal shape.
  void Add(const ops::Site& site, const Tensor& a, const Tensor& b, ThreadPool& pool);
  // Worst first; equals by name.
  std::vector<SiteError> Sorted() const;

 private:
  std::map<ops::Site, SiteError> errors_;
};

class SiteProbe : public ops::Interceptor {
 public:
  explicit SiteProbe(ops::Interceptor* provider) : provider_(provider) {}

  std::optional<ops::Var> Dot(ops::Context& context, const ops::DotCall& call) override;
  std::optional<ops::Var> RaggedDot(ops::Context& context, const ops::RaggedCall& call) override;
  bool Answers(const ops::Site& site) const override;
  void Fused(ops::Context& context, const ops::DotCall& call) override;
  std::optional<ops::KvFormat> KvCache(ops::Context& context, const ops::KvCall& call) override;
  void Observe(ops::Context& context, const ops::Site& site, const Tensor& out) override;

  // Takes the outputs seen since the last call and compares those that both saw. Sites with another number of outputs
  // are left out.
  static void Compare(SiteProbe& a, SiteProbe& b, ThreadPool& pool, SiteErrors& errors);

 private:
  ops::Interceptor* provider_;
  std::map<ops::Site, Tensor> outputs_;
};

}  // namespace octavo::eval
