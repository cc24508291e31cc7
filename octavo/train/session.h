// Everything a run consists of, built from settings in the right order: model, plan, provider, optimizer, data, run
// folder, checkpoint store; restored from the newest checkpoint or initialized. What can be wrong, and the price, is
// said before any of the model's memory is taken. The trainer's loop works on it.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "octavo/checkpoint/checkpoint_store.h"
#include "octavo/data/source.h"
#include "octavo/quant/recipe_choice.h"
#include "octavo/train/flops.h"
#include "octavo/train/health_log.h"
#include "octavo/train/run_folder.h"
#include "octavo/train/run_state.h"
#include "octavo/train/shadow.h"
#include "octavo/train/start_block.h"
#include "octavo/train/stepper.h"
#include "octavo/train/trainer.h"

namespace octavo::train {

class Session {
 public:
  // Prints the lines before the first step on the way.
  explicit Session(const TrainRequest& request);

  const TrainOptions& options() const { return options_; }
  bool is_first_rank() const { return request_.communicator.rank() == 0; }
  const std::filesystem::path& run_path() const { return run_path_; }
  int64_t first_step() const { return first_step_; }  // where the run begins or goes on
  bool resumed() const { return resumed_; }           // from a checkpoint of this run
  const StepFlops& flops() const { return flops_; }
  const quant::RecipeChoice& recipe() const { return recipe_; }

  Stepper& stepper() { return *stepper_; }
  HealthLog& health() { return health_; }
  std::vector<std::unique_ptr<Shadow>>& shadows() { return shadows_; }
  StepParts parts();
  data::BatchSource& data() { return *data_; }
  // A fresh pass over the held-out data; null when there is none.
  std::unique_ptr<data::BatchSource> OpenEval() const;
  data::DataOptions DataOptionsOf(int64_t rows) const;
  CheckpointStore& store() { return *store_; }
  RunFolder& folder() { return *folder_; }
  CheckpointContent Content(int64_t step);
  RunState state();

 private:
  void MakeModelAndPlan();
  void PrintStart();
  void PrintPlan();
  void RequireMemory(const MemoryEstimate& memory);
  int64_t StepsLeft() const;
  void RestoreOrInitialize();
  void RestoreAll(const Checkpoint& checkpoint);

  const TrainRequest& request_;
  TrainOptions options_;
  std::filesystem::path run_path_;
  quant::RecipeChoice recipe_;
  std::unique_ptr<models::Model> model_;
  quant::Plan plan_;
  StepFlops flops_;
  HealthLog health_;  // outlives the provider, which writes into its sink
  std::unique_ptr<quant::Provider> provider_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  ops::StateStore state_;
  kernels::Workspace workspace_;
  std::unique_ptr<data::BatchSource> data_;
  std::unique_ptr<RunFolder> folder_;  // rank 0 only
  std::unique_ptr<CheckpointStore> store_;
  std::unique_ptr<Stepper> stepper_;
  std::vector<std::unique_ptr<Shadow>> shadows_;
  int64_t first_step_ = 0;
  bool resumed_ = false;
};

}  // namespace octavo::train
