#include "octavo/train/divergence.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <set>

#include "octavo/base/error.h"
#include "octavo/train/shadow.h"

namespace octavo::train {
namespace {

constexpr size_t kRecent = 200;

struct Extent {
  bool finite = true;
  double largest = 0;  // of the finite magnitudes
};

Extent ExtentOf(const Tensor& tensor) {
  Extent extent;
  if (!tensor.defined() || tensor.is_meta()) return extent;
  const auto see = [&extent](float value) {
    if (!std::isfinite(value)) {
      extent.finite = false;
    } else {
      extent.largest = std::max(extent.largest, static_cast<double>(std::fabs(value)));
    }
  };
  const Tensor packed = tensor.Contiguous();
  if (packed.dtype() == DType::kF32) {
    for (const float value : packed.Values<float>()) see(value);
  } else if (packed.dtype() == DType::kBF16) {
    for (const uint16_t bits : packed.Values<uint16_t>()) see(std::bit_cast<float>(uint32_t{bits} << 16));
  }
  return extent;
}

std::string Figure(double value) { return std::isnan(value) ? "NaN" : fmt::format("{:.4g}", value); }

// Looks at every operand and result that passes, and hands the call on. Remembers the first that is not finite.
class Observer final : public ops::Interceptor {
 public:
  explicit Observer(ops::Interceptor* next) : next_(next) {}

  std::optional<ops::Var> Dot(ops::Context& context, const ops::DotCall& call) override {
    Look(call.site, call.lhs, "left operand");
    Look(call.site, call.rhs, "right operand");
    std::optional<ops::Var> out = next_ == nullptr ? std::nullopt : next_->Dot(context, call);
    if (out) Look(call.site, out->value, "result");
    return out;
  }
  std::optional<ops::Var> RaggedDot(ops::Context& context, const ops::RaggedCall& call) override {
    Look(call.site, call.lhs, "left operand");
    Look(call.site, call.rhs, "right operand");
    std::optional<ops::Var> out = next_ == nullptr ? std::nullopt : next_->RaggedDot(context, call);
    if (out) Look(call.site, out->value, "result");
    return out;
  }
  bool Answers(const ops::Site& site) const override { return next_ != nullptr && next_->Answers(site); }
  void Fused(ops::Context& context, const ops::DotCall& call) override {
    if (next_ != nullptr) next_->Fused(context, call);
  }

  struct Found {
    ops::Site site;
    std::string what;
    double largest;
  };
  const std::optional<Found>& found() const { return found_; }
  int64_t sites() const { return seen_; }

 private:
  void Look(const ops::Site& site, const ops::Operand& operand, const char* what) {
    if (!operand.quantized()) Look(site, operand.tensor(), operand.role == ops::Role::kWeight ? "weight" : what);
  }
  void Look(const ops::Site& site, const Tensor& tensor, const char* what) {
    if (found_) return;
    ++seen_;
    const Extent extent = ExtentOf(tensor);
    if (!extent.finite) found_ = Found{site, what, extent.largest};
  }

  ops::Interceptor* next_;
  std::optional<Found> found_;
  int64_t seen_ = 0;
};

const quant::OperandPlan& OperandOf(const quant::SitePlan& site, std::string_view operand) {
  const quant::ProductPlan& product = operand.starts_with("forward")    ? site.forward
                                      : operand.starts_with("grad_lhs") ? site.grad_lhs
                                                                        : site.grad_rhs;
  return operand.ends_with("rhs") ? product.rhs : product.lhs;
}

std::string FormatOf(const quant::OperandPlan& operand) {
  return operand.format ? fmt::format("{}, {}", Info(*operand.format).name, operand.calibration) : "float";
}

// Parameters whose gradient is not finite, those nearest to the loss first.
struct BadGradients {
  std::string first;
  double largest = 0;
  int64_t count = 0, all = 0;
};

BadGradients FindBadGradients(const Stepper& stepper) {
  const std::vector<std::string> names = stepper.ParameterNames();
  BadGradients bad;
  for (size_t i = names.size(); i-- > 0;) {
    ++bad.all;
    const Extent extent = ExtentOf(stepper.gradients()[i]);
    if (extent.finite) continue;
    if (bad.count++ == 0) bad.first = names[i], bad.largest = extent.largest;
  }
  return bad;
}

std::string BeforeLine(const RecentSteps& recent) {
  std::string line;
  const auto& figures = recent.figures();
  for (size_t i = figures.size() > 4 ? figures.size() - 4 : 0; i < figures.size(); ++i) {
    line += fmt::format("{}{} loss {:.3f} grad norm {:.3g}", line.empty() ? "" : "    ", figures[i].step,
                        figures[i].loss, figures[i].grad_norm);
  }
  return line;
}

// "grad_lhs.lhs (output gradient)".
std::string_view DescribeOperand(std::string_view name) {
  using quant::OperandSide, quant::ProductKind;
  for (const ProductKind product : {ProductKind::kForward, ProductKind::kGradLhs, ProductKind::kGradRhs}) {
    for (const OperandSide side : {OperandSide::kLhs, OperandSide::kRhs}) {
      if (quant::NameOf({product, side}) == name) return quant::Describe({product, side});
    }
  }
  return name;
}

// Where it began.
struct Culprit {
  std::string path;                    // of a site or a parameter
  std::optional<quant::HealthKey> at;  // an operand that is quantized
  std::string text;
};

// The operand whose figures changed: what they were, what they are, and how the last steps went.
std::string HistoryOf(const quant::HealthKey& key, const quant::HealthRecords& now, const HealthLog& health) {
  const auto found = now.find(key);
  if (found == now.end()) return "";
  const quant::OperandHealth& figures = found->second;
  std::string text = "          amax ";
  const HealthLog::Noted& full = health.last_full();
  if (const auto then = full.records.find(key); then != full.records.end()) {
    text += fmt::format("{:.2g} (step {}) -> ", then->second.amax, full.step);
  }
  text += fmt::format("{:.2g}; scale {:.2g} to {:.2g}; saturated {:.2f} %; not finite {} of {}\n", figures.amax,
                      figures.scale_min, figures.scale_max, 100 * figures.SaturatedShare(), figures.nonfinite,
                      figures.elements);
  std::string before;
  const auto& noted = health.noted();
  for (size_t i = noted.size() > 5 ? noted.size() - 5 : 0; i < noted.size(); ++i) {
    const auto then = noted[i].records.find(key);
    if (then == noted[i].records.end()) continue;
    before +=
        fmt::format("{}{} {:.2f} %", before.empty() ? "" : "    ", noted[i].step, 100 * then->second.SaturatedShare());
  }
  return before.empty() ? text : text + fmt::format("          saturated at step {}\n", before);
}

Culprit FindForward(const Observer::Found& found, const quant::Plan& plan) {
  Culprit culprit{found.site.path, std::nullopt, ""};
  const std::string_view operand = found.what == "left operand" ? "forward.lhs" : "forward.rhs";
  const quant::SitePlan* site = plan.Find(found.site);
  const bool treated = site != nullptr && site->treatment && found.what != "result";
  if (treated) culprit.at = {found.site.path, std::string(operand)};
  culprit.text =
      fmt::format("first     {}   {}   {}\n          largest finite magnitude {:.2g}\n", found.site.ToString(),
                  found.what == "result" ? "forward, result" : DescribeOperand(operand),
                  treated ? FormatOf(OperandOf(*site, operand)) : "float", found.largest);
  return culprit;
}

// The backward pass meets sites in the opposite order.
std::optional<Culprit> FindBackward(const quant::Plan& plan, const quant::HealthRecords& records) {
  for (size_t i = plan.sites.size(); i-- > 0;) {
    const quant::SitePlan& site = plan.sites[i];
    for (const char* operand : {"grad_lhs.lhs", "grad_rhs.lhs", "grad_lhs.rhs", "grad_rhs.rhs"}) {
      const auto found = records.find({site.site.path, operand});
      if (found == records.end() || found->second.nonfinite == 0) continue;
      return Culprit{site.site.path, found->first,
                     fmt::format("first     {}   {}   {}\n", site.site.path, DescribeOperand(operand),
                                 FormatOf(OperandOf(site, operand)))};
    }
  }
  return std::nullopt;
}

Culprit FindCulprit(const StepParts& parts, const Observer& observer, const BadGradients& bad,
                    const quant::HealthRecords& records) {
  for (const ops::Parameter* parameter : parts.model.parameters()) {
    if (ExtentOf(parameter->tensor()).finite) continue;
    return {parameter->name, std::nullopt,
            fmt::format("first     parameter {} is not finite before the step\n", parameter->name)};
  }
  if (observer.found()) return FindForward(*observer.found(), parts.plan);
  if (std::optional<Culprit> backward = FindBackward(parts.plan, records)) return *backward;
  if (bad.count == 0) return {"", std::nullopt, "first     the loss itself; every operand of a matmul is finite\n"};
  return {bad.first, std::nullopt,
          fmt::format("first     gradient of {}   backward; the forward pass is finite\n          largest finite "
                      "magnitude {:.2g}\n",
                      bad.first, bad.largest)};
}

bool Holds(const StepResult& result) { return std::isfinite(result.loss) && std::isfinite(result.raw_grad_norm); }

// The same step under another recipe and without any.
struct Alternatives {
  std::string text, recipe;  // `recipe` is empty when it does not hold either
  bool float_holds = false;
};
Alternatives TryAlternatives(Stepper& stepper, const StepParts& parts, const data::Batch& batch,
                             const DivergenceInput& input) {
  Alternatives result;
  if (parts.provider == nullptr) return result;
  const std::string other = input.recipe == "fp8_full" ? "int8" : "fp8_full";
  stepper.DropGradients();
  try {
    Shadow shadow(input.settings, other, parts, input.options);
    const StepResult under = shadow.Measure(batch, input.step);
    if (Holds(under)) result.recipe = other;
    result.text += fmt::format("{} loss {}, gradient norm {}, {};   ", other, Figure(under.loss),
                               Figure(under.raw_grad_norm), shadow.health().Summary());
  } catch (const Error&) {
    // The recipe does not suit the model: nothing to compare with.
  }
  const StepResult plain = stepper.Replay(batch, input.step, nullptr);
  result.float_holds = Holds(plain);
  result.text = fmt::format("replay    the same step: {}without quantization loss {}, gradient norm {}\n", result.text,
                            Figure(plain.loss), Figure(plain.raw_grad_norm));
  return result;
}

std::string Advice(const DivergenceInput& input, std::string path, const Alternatives& alternatives) {
  if (path.ends_with("/kernel") || path.ends_with("/scale") || path.ends_with("/bias")) path.resize(path.rfind('/'));
  std::string advice;
  if (!alternatives.recipe.empty()) advice += fmt::format("quantization={}, or ", alternatives.recipe);
  if (alternatives.float_holds && !path.empty()) advice += fmt::format("a rule that keeps '{}' in float, or ", path);
  if (input.options.clip_threshold <= 0) advice += "gradient_clipping_threshold=1.0, or ";
  return advice + "a smaller learning_rate, or a longer warm-up (warmup_steps_fraction)";
}

}  // namespace

void RecentSteps::Add(const Figures& figures) {
  figures_.push_back(figures);
  if (figures_.size() > kRecent) figures_.pop_front();
}

double RecentSteps::SigmaAbove(double loss) const {
  if (figures_.size() < 20) return 0;
  double sum = 0, squares = 0;
  for (const Figures& one : figures_) sum += one.loss;
  const double mean = sum / static_cast<double>(figures_.size());
  for (const Figures& one : figures_) squares += (one.loss - mean) * (one.loss - mean);
  const double sigma = std::sqrt(squares / static_cast<double>(figures_.size() - 1));
  return sigma > 0 ? (loss - mean) / sigma : 0;
}

std::string WhatBroke(const StepResult& result, const TrainOptions& options) {
  if (options.abort_on_nan && std::isnan(result.loss)) return "loss is NaN";
  if (options.abort_on_inf && std::isinf(result.loss)) return "loss is infinite";
  if (options.abort_on_nan && std::isnan(result.raw_grad_norm)) return "a gradient is NaN";
  if (options.abort_on_inf && std::isinf(result.raw_grad_norm)) return "a gradient is infinite";
  return "";
}

std::string DivergenceReport(Stepper& stepper, const StepParts& parts, const data::Batch& batch,
                             const DivergenceInput& input) {
  std::string text = fmt::format("stopped   step {}: {}          last good checkpoint {}      exit 4\n", input.step,
                                 input.reason, input.checkpoint.empty() ? "none" : input.checkpoint);
  const BadGradients bad = FindBadGradients(stepper);
  Observer observer(parts.provider);
  input.health.MeasureAll();
  stepper.Replay(batch, input.step, &observer);
  const quant::HealthRecords records = input.health.TakeReplay(parts.communicator);
  const Culprit culprit = FindCulprit(parts, observer, bad, records);
  text += culprit.text;
  if (culprit.at) text += HistoryOf(*culprit.at, records, input.health);
  if (!input.recent.figures().empty()) text += fmt::format("before    {}\n", BeforeLine(input.recent));
  if (!records.empty()) {
    std::set<std::string> sites, clipped;
    for (const auto& item : records) {
      sites.insert(item.first.site);
      if (item.second.SaturatedShare() > 0.001 && item.first.site != culprit.path) clipped.insert(item.first.site);
    }
    text += fmt::format("others    {} of {} sites saturated above 0.1 %;   {} of {} gradients are not finite\n",
                        clipped.size(), sites.size(), bad.count, bad.all);
  } else {
    text += fmt::format("others    {} of {} gradients are not finite\n", bad.count, bad.all);
  }
  const Alternatives alternatives = TryAlternatives(stepper, parts, batch, input);
  return text + alternatives.text + fmt::format("try       {}\n", Advice(input, culprit.path, alternatives));
}

}  // namespace octavo::train
