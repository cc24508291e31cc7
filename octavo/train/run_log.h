// Everything a run says while it goes: lines for people on the log, a bar at the bottom of a terminal, TensorBoard
// events, metrics.jsonl, and with --json the same events on standard output. Only rank 0 has one.
#pragma once

#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "octavo/base/log.h"
#include "octavo/checkpoint/checkpoint_store.h"
#include "octavo/train/event_file.h"
#include "octavo/train/json_lines.h"
#include "octavo/train/run_folder.h"
#include "octavo/train/step_metrics.h"

namespace octavo::train {

struct RunLogOptions {
  int64_t first_step = 0, steps = 0;
  bool tensorboard = true;
  std::string metrics_file;   // a second copy of the metrics; empty: none
  std::FILE* json = nullptr;  // where --json goes
};

class RunLog {
 public:
  RunLog(Log& log, const RunFolder& folder, const RunLogOptions& options);
  ~RunLog();

  void Step(const StepMetrics& metrics);
  void Eval(const EvalMetrics& metrics);
  void Saved(const SavedCheckpoint& saved);
  // Scalars that belong to a step beside its metrics, and their lines for a file of their own.
  void Extra(int64_t step, const Scalars& scalars);
  void Note(std::string_view text) { log_.Info("{}", text); }
  // Why the run ended early: --quiet does not swallow it.
  void Stopped(std::string_view text) { log_.Always("{}", text); }
  // Nothing is written any more after a write failed.
  void Json(const std::string& line);
  // Why: 0, or errno. EPIPE: whoever read the events went away.
  int json_problem() const { return json_problem_; }
  void EndBar() { log_.Status(""); }

 private:
  void Bar(const StepMetrics& metrics);

  Log& log_;
  RunLogOptions options_;
  std::optional<EventFile> events_;
  JsonLinesFile metrics_;
  std::optional<JsonLinesFile> copy_;
  double start_ = 0;
  int json_problem_ = 0;
};

// "0.24 GiB", "13 MiB", "812 kB".
std::string SizeText(double bytes);

}  // namespace octavo::train
