// Trains: from settings to a run folder with checkpoints. Ties together model, plan, data, stepper, checkpoints and
// what is shown; `octavo train`, the benchmarks and the tests call it. Every rank calls it with its own communicator
// and pool; only rank 0 writes and prints.
#pragma once

#include <cstdio>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "octavo/base/log.h"
#include "octavo/base/thread_pool.h"
#include "octavo/config/settings.h"
#include "octavo/dist/communicator.h"
#include "octavo/ops/context.h"
#include "octavo/ops/profile.h"
#include "octavo/optim/gradient_tree.h"
#include "octavo/train/step_metrics.h"

namespace octavo::train {

struct TrainRequest {
  const Settings& settings;
  Log& log;
  ThreadPool& pool;
  Communicator& communicator;
  kernels::Isa isa;
  std::function<int()> signal = nullptr;                      // the signal that asks to stop; 0 or null: none
  std::FILE* json = nullptr;                                  // one JSON object per event; closed: save and end
  std::function<void(const StepMetrics&)> on_step = nullptr;  // after each step
  // The gradients of the batch before clipping, by parameter; to measure them, or to damage them in a test.
  std::function<void(int64_t step, const std::vector<std::string>& names, optim::Gradients&)> on_gradients = nullptr;
  // The command to suggest at the end, from run folder and last checkpoint; null: none.
  std::function<std::string(const std::filesystem::path&, const std::filesystem::path&)> next_command = nullptr;
};

struct TrainSummary {
  int exit_code = 0;  // 0 done, 4 numbers broke, 129, 130 or 143 interrupted
  std::filesystem::path run;
  int64_t first_step = 0, steps = 0;  // made before and after
  double first_loss = 0, last_loss = 0;
  double last_eval_loss = 0;           // 0: there was none
  std::string bits;                    // of parameters, optimizer and recipe state at the end
  ops::Profile profile;                // with profile=true, without the first step
  std::vector<std::string> quantized;  // paths of the sites that the recipe quantizes
};

TrainSummary Train(const TrainRequest& request);

}  // namespace octavo::train
