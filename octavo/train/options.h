// What a training run needs to know, taken out of the settings once and checked: the batch and its canonical shards,
// optimizer, schedule, periods, seeds. Plain data for the trainer; the architecture is models::ModelConfig.
#pragma once

#include <cstdint>
#include <string>

#include "octavo/config/settings.h"
#include "octavo/ops/remat.h"
#include "octavo/optim/optimizer.h"
#include "octavo/optim/schedule.h"

namespace octavo::train {

struct TrainOptions {
  int64_t steps = 0;
  int64_t rows = 0;          // of the global batch: per_device_batch_size × gradient_accumulation_steps
  int64_t length = 0;        // max_target_length
  int64_t shards = 0;        // canonical shards of the batch
  int64_t accumulation = 1;  // divides shards; changes no bit

  optim::ScheduleConfig schedule;
  optim::OptimizerConfig optimizer;
  double clip_threshold = 1;
  double z_loss_multiplier = 0;
  int vocab_tiling = 1;
  double routed_bias_update_rate = 0;
  ops::RematPolicy remat;
  uint64_t init_seed = 0, data_seed = 0;

  bool checkpoints = true, async_checkpoints = true, checkpoint_on_start = true, checkpoint_on_completion = true;
  int64_t checkpoint_period = 0;  // 0: never by period
  int64_t checkpoints_kept = 0;   // 0: all
  std::string load_parameters, load_full_state;

  int64_t eval_interval = 0;  // 0: no evaluation
  int64_t eval_steps = 0;     // 0: all of the data
  int64_t eval_start = 0;
  int64_t eval_rows = 0;
  double target_eval_loss = 0;  // 0: none

  bool abort_on_nan = true, abort_on_inf = true;
  bool tensorboard = true, profile = false;
  std::string metrics_file;
};

// Usage errors say which keys do not fit each other.
TrainOptions TrainOptionsFrom(const Settings& settings);
// Parts of them, for whoever trains without the trainer.
optim::ScheduleConfig ScheduleOf(const Settings& settings);
optim::OptimizerConfig OptimizerOf(const Settings& settings);

// How many canonical shards a batch of `rows` is cut into. `asked` as in gradient_shards; when it was not given by the
// user (`given` false) and does not fit, the largest of 4, 2, 1 that divides the rows, or the accumulation steps when
// those do not divide it. What was given and does not fit is a usage error.
int64_t ChooseShards(int64_t rows, int64_t accumulation, int64_t asked, bool given);

}  // namespace octavo::train
