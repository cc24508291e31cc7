#include "octavo/train/step_metrics.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace octavo::train {
namespace {

using Json = nlohmann::ordered_json;

Json Number(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
}

double PerSecond(double amount, double seconds) { return seconds > 0 ? amount / seconds : 0; }

// Python's way to write what is no number.
std::string Fixed(double value, int digits) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return fmt::format("{:.{}f}", value, digits);
}

}  // namespace

double Perplexity(double lm_loss) { return std::exp(static_cast<float>(lm_loss)); }

std::string StepLine(const StepMetrics& m) {
  std::string line = fmt::format(
      "completed step: {}, seconds: {}, TFLOP/s/device: {}, Tokens/s/device: {}, total_weights: {:.0f}, loss: {}, "
      "lm_loss: {}, perplexity: {}",
      m.step, Fixed(m.seconds, 3), Fixed(PerSecond(m.tflops, m.seconds), 3),
      Fixed(PerSecond(static_cast<double>(m.tokens), m.seconds), 3), m.total_weights, Fixed(m.loss, 3),
      Fixed(m.lm_loss, 3), Fixed(Perplexity(m.lm_loss), 3));
  if (m.moe_lb_loss) line += fmt::format(", moe_lb_loss: {}", Fixed(*m.moe_lb_loss, 6));
  if (m.mtp_loss) {
    line += fmt::format(", main_model_loss: {}, mtp_loss: {}", Fixed(m.loss - *m.mtp_loss, 3), Fixed(*m.mtp_loss, 3));
  }
  return line;
}

std::string EvalLine(const EvalMetrics& m) {
  return fmt::format("Completed eval after train step {}, loss={}, perplexity={}, total_weights={}, avg_z_loss={}",
                     m.step, Fixed(m.loss, 3), Fixed(Perplexity(m.loss), 3), Fixed(m.total_weights, 1),
                     Fixed(m.z_loss, 3));
}

Scalars TensorBoardScalars(const StepMetrics& m) {
  Scalars scalars = {{"learning/loss", m.loss},
                     {"learning/lm_loss", m.lm_loss},
                     {"learning/perplexity", Perplexity(m.lm_loss)},
                     {"learning/z_loss", m.z_loss},
                     {"learning/total_weights", m.total_weights},
                     {"learning/grad_norm", m.grad_norm},
                     {"learning/raw_grad_norm", m.raw_grad_norm},
                     {"learning/param_norm", m.param_norm},
                     {"learning/current_learning_rate", m.learning_rate},
                     {"perf/step_time_seconds", m.seconds},
                     {"perf/per_device_tflops", m.tflops},
                     {"perf/per_device_tflops_per_sec", PerSecond(m.tflops, m.seconds)},
                     {"perf/per_device_tokens", static_cast<double>(m.tokens)},
                     {"perf/per_device_tokens_per_sec", PerSecond(static_cast<double>(m.tokens), m.seconds)}};
  if (m.moe_lb_loss) scalars.emplace_back("learning/moe_lb_loss", *m.moe_lb_loss);
  if (m.mtp_loss) scalars.emplace_back("learning/mtp_loss", *m.mtp_loss);
  return scalars;
}

Scalars TensorBoardScalars(const EvalMetrics& m) {
  Scalars scalars = {{"evaluation/loss", m.loss},
                     {"eval/avg_loss", m.loss},
                     {"eval/avg_perplexity", Perplexity(m.loss)},
                     {"eval/total_weights", m.total_weights},
                     {"eval/avg_z_loss", m.z_loss}};
  if (m.moe_lb_loss) scalars.emplace_back("eval/avg_moe_lb_loss", *m.moe_lb_loss);
  if (m.mtp_loss) scalars.emplace_back("eval/avg_mtp_loss", *m.mtp_loss);
  return scalars;
}

std::string JsonLine(const StepMetrics& m) {
  Json line = {{"event", "step"}, {"step", m.step}, {"seconds", Number(m.seconds)}};
  for (const auto& [tag, value] : TensorBoardScalars(m)) line[tag] = Number(value);
  return line.dump();
}

std::string JsonLine(const EvalMetrics& m) {
  Json line = {{"event", "eval"}, {"step", m.step}, {"eval_steps", m.steps}};
  for (const auto& [tag, value] : TensorBoardScalars(m)) line[tag] = Number(value);
  return line.dump();
}

}  // namespace octavo::train
