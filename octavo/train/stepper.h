// One training step: gradients of the batch's canonical shards, summed by the fixed tree over shards and ranks, then
// clipping, the optimizer, the recipe's running state and the routing bias. A step is a pure function of parameters,
// optimizer state, recipe state, batch and step number: nothing else enters. It prints, saves and decides nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "octavo/data/batch.h"
#include "octavo/dist/communicator.h"
#include "octavo/models/model.h"
#include "octavo/ops/context.h"
#include "octavo/ops/profile.h"
#include "octavo/ops/state.h"
#include "octavo/optim/gradient_tree.h"
#include "octavo/optim/optimizer.h"
#include "octavo/quant/plan.h"
#include "octavo/quant/provider.h"
#include "octavo/train/options.h"

namespace octavo::train {

// What a run changes as it goes, and what it computes with. All of it outlives the stepper.
struct StepParts {
  models::Model& model;
  optim::Optimizer& optimizer;
  ops::StateStore& state;  // of the recipe
  const quant::Plan& plan;
  quant::Provider* provider;  // null: float
  Communicator& communicator;
  ThreadPool& pool;
  kernels::Isa isa;
  kernels::Workspace& workspace;
};

struct StepResult {
  double loss = 0, lm_loss = 0, z_loss = 0, total_weights = 0;
  double moe_lb_loss = 0, mtp_loss = 0;
  double raw_grad_norm = 0, grad_norm = 0;
};

class Stepper {
 public:
  Stepper(const StepParts& parts, const TrainOptions& options);

  // Losses and gradients of the global batch. Changes nothing: the same call gives the same result again.
  StepResult Compute(const data::Batch& batch, int64_t step, ops::Profile* profile = nullptr);
  // Moves parameters, optimizer and state on by the gradients of the last Compute, which are then gone.
  // Gives the norm of the new parameters.
  double Apply(double rate, ops::Profile* profile = nullptr);

  // Moves the recipe's running state alone on by what the last Compute observed; Apply does it too.
  void AdvanceRecipe();
  // For a Compute without Apply: gives the memory back.
  void DropGradients() { gradients_.clear(); }

  // The loss of a batch without gradients, dropout or state updates; for evaluation. `shards` divides its rows.
  models::LossParts Evaluate(const data::Batch& batch, int64_t shards);

  // For the report of a step that broke: the same loss with another interceptor, or none.
  StepResult Replay(const data::Batch& batch, int64_t step, ops::Interceptor* interceptor);

  const optim::Gradients& gradients() const { return gradients_; }
  // Called with the gradients of every Compute before their norm is taken.
  using OnGradients = std::function<void(int64_t step, const std::vector<std::string>& names, optim::Gradients&)>;
  void set_on_gradients(OnGradients call) { on_gradients_ = std::move(call); }
  // Called after every shard that this rank computed with gradients.
  void set_on_shard(std::function<void()> call) { on_shard_ = std::move(call); }
  std::vector<std::string> ParameterNames() const;

 private:
  struct Sum;
  // Targets that count, of the whole batch.
  struct BatchWeights {
    double targets = 0, further = 0;  // of the next token; of multi-token prediction
  };
  void RunShard(const data::Batch& batch, int64_t step, int64_t shard, const BatchWeights& weights,
                optim::GradientTree& tree, Sum& sum);
  Sum ComputeShards(const data::Batch& batch, int64_t step, optim::GradientTree& tree);
  ops::Context MakeContext(int64_t step);
  void MergeObservations();
  std::vector<const ops::Parameter*> BalanceExperts();  // the biases that it moved

  StepParts parts_;
  TrainOptions options_;
  ops::Interceptor* interceptor_ = nullptr;
  ops::Profile* profile_ = nullptr;
  ops::UpdateSink updates_;
  optim::Gradients gradients_;
  std::vector<ops::AuxLosses::ExpertLoad> loads_;  // of the whole batch
  double clip_factor_ = 1;
  OnGradients on_gradients_;
  std::function<void()> on_shard_;
  std::map<const ops::Parameter*, size_t> index_;  // of the model's parameters
};

// One f32 tensor of ones in the shape of a loss.
Tensor OnesLike(const Tensor& tensor);

}  // namespace octavo::train
