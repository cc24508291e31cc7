// Times the dots that a provider answers, forward and backward, into the profile of the context: float ops time
// themselves, a provider is timed from outside. The backward pass of a dot lies between two marks on the tape, one on
// the result and one on the left operand; they hand gradients through untouched. Used by the stepper with profile=true.
#pragma once

#include <optional>

#include "octavo/ops/interceptor.h"
#include "octavo/ops/profile.h"

namespace octavo::train {

class ProfilingInterceptor final : public ops::Interceptor {
 public:
  // `next` may be null: then every op runs in float, and nothing is timed here.
  explicit ProfilingInterceptor(ops::Interceptor* next) : next_(next) {}

  std::optional<ops::Var> Dot(ops::Context& context, const ops::DotCall& call) override;
  std::optional<ops::Var> RaggedDot(ops::Context& context, const ops::RaggedCall& call) override;
  bool Answers(const ops::Site& site) const override { return next_ != nullptr && next_->Answers(site); }
  void Fused(ops::Context& context, const ops::DotCall& call) override {
    if (next_ != nullptr) next_->Fused(context, call);
  }

 private:
  template <typename Call>
  std::optional<ops::Var> Time(ops::Context& context, const ops::Site& site, const ops::Operand& lhs, double macs,
                               Call&& call);

  ops::Interceptor* next_;
};

}  // namespace octavo::train
