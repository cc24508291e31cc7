#include "octavo/train/divergence.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>

#include "octavo/base/error.h"

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

std::string FormatsOf(const quant::Plan& plan, const ops::Site& site) {
  const quant::SitePlan* found = plan.Find(site);
  if (found == nullptr || !found->treatment) return "float";
  const auto name = [](const quant::OperandPlan& operand) {
    return operand.format ? fmt::format("{} {}", Info(*operand.format).name, operand.calibration)
                          : std::string("float");
  };
  return fmt::format("{} × {}", name(found->forward.lhs), name(found->forward.rhs));
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

std::string Advice(const DivergenceInput& input, const std::string& path, bool float_is_fine) {
  std::string advice;
  if (!input.recipe.empty() && float_is_fine) {
    if (!path.empty()) advice += fmt::format("a rule that keeps '{}' in float, or ", path);
    advice += input.recipe == "fp8_full" ? "quantization=int8, or " : "quantization=fp8_full, or ";
  }
  if (input.clip_threshold <= 0) advice += "gradient_clipping_threshold=1.0, or ";
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
  stepper.Replay(batch, input.step, &observer);
  std::string path;
  for (const ops::Parameter* parameter : parts.model.parameters()) {
    if (ExtentOf(parameter->tensor()).finite) continue;
    text += fmt::format("first     parameter {} is not finite before the step\n", parameter->name);
    path = parameter->name;
    break;
  }
  if (const auto& found = observer.found(); found && path.empty()) {
    path = found->site.path;
    text += fmt::format("first     {}   forward, {}   {}\n          largest finite magnitude {:.2g}\n",
                        found->site.ToString(), found->what, FormatsOf(parts.plan, found->site), found->largest);
  } else if (path.empty() && bad.count > 0) {
    path = bad.first;
    text += fmt::format(
        "first     gradient of {}   backward; the forward pass is finite\n          largest finite magnitude {:.2g}\n",
        bad.first, bad.largest);
  } else if (path.empty()) {
    text += "first     the loss itself; every operand of a matmul is finite\n";
  }
  if (!input.recent.figures().empty()) text += fmt::format("before    {}\n", BeforeLine(input.recent));
  text += fmt::format("others    {} of {} gradients are not finite\n", bad.count, bad.all);
  bool float_is_fine = false;
  if (parts.provider != nullptr) {
    const StepResult plain = stepper.Replay(batch, input.step, nullptr);
    float_is_fine = std::isfinite(plain.loss) && std::isfinite(plain.raw_grad_norm);
    text += fmt::format("replay    the same step without quantization: loss {}, gradient norm {}\n", Figure(plain.loss),
                        Figure(plain.raw_grad_norm));
  }
  const size_t slash = path.rfind('/');
  const bool is_parameter = path.ends_with("/kernel") || path.ends_with("/scale") || path.ends_with("/bias");
  text += fmt::format("try       {}\n", Advice(input, is_parameter ? path.substr(0, slash) : path, float_is_fine));
  return text;
}

}  // namespace octavo::train
