#include "octavo/train/run_log.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "octavo/base/progress.h"

namespace octavo::train {

std::string SizeText(double bytes) {
  if (bytes < 1e6) return fmt::format("{:.0f} kB", bytes / 1e3);
  if (bytes < 100e6) return fmt::format("{:.1f} MiB", bytes / (1 << 20));
  return fmt::format("{:.2f} GiB", bytes / (1 << 30));
}

RunLog::RunLog(Log& log, const RunFolder& folder, const RunLogOptions& options)
    : log_(log), options_(options), metrics_(folder.metrics(), options.first_step), start_(Progress::SteadySeconds()) {
  if (options.tensorboard) events_.emplace(folder.tensorboard(), options.first_step);
  if (!options.metrics_file.empty()) copy_.emplace(options.metrics_file, options.first_step);
}

RunLog::~RunLog() { log_.Status(""); }

void RunLog::Json(const std::string& line) {
  if (options_.json == nullptr || json_problem_ != 0) return;
  // Past the stream's buffer: what cannot be written must not be tried again when the process ends.
  const std::string text = line + "\n";
  for (size_t at = 0; at < text.size();) {
    const ssize_t count = ::write(fileno(options_.json), text.data() + at, text.size() - at);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      json_problem_ = errno;
      return;
    }
    at += static_cast<size_t>(count);
  }
}

void RunLog::Step(const StepMetrics& metrics) {
  const std::string line = JsonLine(metrics);
  log_.Info("{}", StepLine(metrics));
  metrics_.Add(line);
  if (copy_) copy_->Add(line);
  if (events_) events_->Add(metrics.step, TensorBoardScalars(metrics));
  Json(line);
  Bar(metrics);
}

void RunLog::Bar(const StepMetrics& metrics) {
  if (!log_.options().status_line) return;
  constexpr int kWidth = 20;
  const int64_t made = metrics.step + 1;
  const double share = std::clamp(static_cast<double>(made) / static_cast<double>(options_.steps), 0.0, 1.0);
  const double elapsed = Progress::SteadySeconds() - start_;
  const double left =
      elapsed / static_cast<double>(made - options_.first_step) * static_cast<double>(options_.steps - made);
  log_.Status(fmt::format("[{:<{}}]  {}/{} steps   {:.0f} tok/s   loss {:.3f}   {} left",
                          std::string(static_cast<size_t>(share * kWidth), '#'), kWidth, made, options_.steps,
                          metrics.seconds > 0 ? static_cast<double>(metrics.tokens) / metrics.seconds : 0.0,
                          metrics.loss, DurationText(left)));
}

void RunLog::Eval(const EvalMetrics& metrics) {
  const std::string line = JsonLine(metrics);
  log_.Info("{}", EvalLine(metrics));
  metrics_.Add(line);
  if (copy_) copy_->Add(line);
  if (events_) events_->Add(metrics.step, TensorBoardScalars(metrics));
  Json(line);
}

void RunLog::Extra(int64_t step, const Scalars& scalars) {
  if (events_ && !scalars.empty()) events_->Add(step, scalars);
}

void RunLog::Saved(const SavedCheckpoint& saved) {
  log_.Info("saved     {}   {}   {:.1f} s", saved.path.string(), SizeText(static_cast<double>(saved.bytes)),
            saved.seconds);
  Json(nlohmann::ordered_json(
           {{"event", "saved"}, {"path", saved.path.string()}, {"bytes", saved.bytes}, {"bits", saved.bits}})
           .dump());
}

}  // namespace octavo::train
