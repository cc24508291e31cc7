#include "octavo/train/shadow.h"

#include <fmt/format.h>

#include <cmath>

namespace octavo::train {
namespace {

quant::ProviderOptions WithHealth(quant::HealthSink* sink) {
  quant::ProviderOptions options;
  options.health = sink;
  return options;
}

}  // namespace

Shadow::Shadow(const Settings& settings, const std::string& recipe, const StepParts& parts, const TrainOptions& options)
    : communicator_(parts.communicator),
      health_(settings, recipe),
      plan_(PlanOf(parts.model, quant::NamedRecipe(settings, recipe), options)),
      provider_(plan_, WithHealth(health_.sink())),
      stepper_(PartsOf(parts), options) {
  stepper_.set_on_shard([this] { health_.EndShard(); });
}

StepParts Shadow::PartsOf(const StepParts& parts) {
  return {parts.model,        parts.optimizer, state_,    plan_,          &provider_,
          parts.communicator, parts.pool,      parts.isa, parts.workspace};
}

StepResult Shadow::Measure(const data::Batch& batch, int64_t step) {
  health_.BeforeStep(step, communicator_.rank());
  health_.MeasureAll();
  last_ = stepper_.Compute(batch, step);
  stepper_.DropGradients();
  stepper_.AdvanceRecipe();
  health_.AfterStep(step, communicator_);
  health_.Pause();
  last_step_ = step;
  return last_;
}

std::string Shadow::Summary() const {
  std::string text = fmt::format("{}   loss of step {} {:.3f}", health_.shadow(), last_step_, last_.loss);
  if (const std::string clipped = health_.Summary(); !clipped.empty()) text += "   " + clipped;
  const quant::HealthKey* worst = nullptr;
  double least = 0;
  for (const auto& item : health_.records()) {
    const double sqnr = item.second.Sqnr();
    if (!std::isfinite(sqnr) || (worst != nullptr && sqnr >= least)) continue;
    worst = &item.first;
    least = sqnr;
  }
  if (worst != nullptr) text += fmt::format("   lowest SQNR {:.1f} dB at {} {}", least, worst->site, worst->operand);
  return text;
}

}  // namespace octavo::train
