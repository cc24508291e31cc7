#include "octavo/train/stepper.h"

#include <algorithm>
#include <cmath>

#include "octavo/base/check.h"
#include "octavo/base/error.h"
#include "octavo/ops/tape.h"
#include "octavo/optim/clipping.h"
#include "octavo/optim/routing_bias.h"
#include "octavo/train/shards.h"

namespace octavo::train {
namespace {

// What a shard adds to the step's figures, as it travels between ranks.
struct ShardFigures {
  double xent_sum = 0, z_loss_sum = 0, moe_lb_loss = 0, mtp_loss = 0;
};

}  // namespace

struct Stepper::Sum {
  std::vector<ShardFigures> figures;  // by shard; those of other ranks come by Gather
  std::vector<ops::AuxLosses::ExpertLoad> loads;
  optim::NormOfParts norm;  // of the summed gradients, as far as they were complete on the way
};

Tensor OnesLike(const Tensor& tensor) {
  Tensor ones = Tensor::Empty(tensor.shape(), DType::kF32);
  for (float& value : ones.MutableValues<float>()) value = 1;
  return ones;
}

Stepper::Stepper(const StepParts& parts, const TrainOptions& options)
    : parts_(parts), options_(options), interceptor_(parts.provider) {
  ShardsOf(options.shards, 0, parts.communicator.size());  // throws when ranks do not divide the shards
  for (const ops::Parameter* parameter : parts.model.parameters()) index_.emplace(parameter, index_.size());
}

std::vector<std::string> Stepper::ParameterNames() const {
  std::vector<std::string> names;
  for (const ops::Parameter* parameter : parts_.model.parameters()) names.push_back(parameter->name);
  return names;
}

ops::Context Stepper::MakeContext(int64_t step) {
  ops::Context context(parts_.pool, parts_.isa, parts_.workspace);
  context.interceptor = interceptor_;
  context.state = &parts_.state;
  context.remat = &options_.remat;
  context.profile = profile_;
  context.key = RngKey::FromSeed(options_.init_seed).FoldIn(static_cast<uint32_t>(step));
  return context;
}

void Stepper::RunShard(const data::Batch& batch, int64_t step, int64_t shard, const BatchWeights& weights,
                       optim::GradientTree& tree, Sum& sum) {
  const ShardBatch part = ShardOf(batch, shard, options_.shards);
  ops::Context context = MakeContext(step);
  ops::Tape tape;
  context.tape = &tape;
  context.updates = &updates_;
  context.training = true;
  const models::LossOptions options{.total_weights = weights.targets,
                                    .mtp_weights = weights.further,
                                    .shard_share = 1.0 / static_cast<double>(options_.shards),
                                    .z_loss_multiplier = options_.z_loss_multiplier,
                                    .vocab_tiling = options_.vocab_tiling,
                                    .training = true};
  models::LossParts parts;
  const ops::Var loss = models::Loss(context, parts_.model, part.inputs, part.targets, part.target_segmentation,
                                     part.rows, options, &parts);
  tree.Begin(shard, parts_.model.parameters().size());
  tape.HandOut([&](const ops::Parameter& parameter, Tensor gradient) {
    const size_t index = index_.at(&parameter);
    {
      const ops::Timed timed(profile_, "gradients", "reduction", "backward");
      tree.Give(index, std::move(gradient), &sum.norm);
    }
    const Tensor complete = tree.Complete(index);
    if (!complete.defined() || sum.norm.Has(index)) return;
    const ops::Timed timed(profile_, "norms", "optimizer", "backward");
    sum.norm.Take(parts_.pool, parts_.isa, index, complete);
  });
  tape.Run(context, loss, OnesLike(loss.value));
  tree.End();
  sum.figures[static_cast<size_t>(shard)] = {parts.xent_sum, parts.z_loss_sum, parts.moe_lb_loss, parts.mtp_loss};
  if (sum.loads.empty()) {
    sum.loads = std::move(parts.loads);
    return;
  }
  OCTAVO_CHECK(sum.loads.size() == parts.loads.size());
  for (size_t i = 0; i < parts.loads.size(); ++i) {
    for (size_t e = 0; e < parts.loads[i].tokens.size(); ++e) sum.loads[i].tokens[e] += parts.loads[i].tokens[e];
  }
}

Stepper::Sum Stepper::ComputeShards(const data::Batch& batch, int64_t step, optim::GradientTree& tree) {
  Communicator& ranks = parts_.communicator;
  const ShardRun run = ShardsOf(options_.shards, ranks.rank(), ranks.size());
  const BatchWeights weights{
      static_cast<double>(data::TargetWeights(batch)),
      static_cast<double>(models::MtpWeights(batch.targets_segmentation, parts_.model.mtp_layers()))};
  Sum sum{std::vector<ShardFigures>(static_cast<size_t>(options_.shards)), {}, optim::NormOfParts(ParameterNames())};
  for (int64_t shard = run.begin; shard < run.end; ++shard) {
    RunShard(batch, step, shard, weights, tree, sum);
    if (on_shard_) on_shard_();
  }
  const std::span<ShardFigures> mine(sum.figures.data() + run.begin, static_cast<size_t>(run.end - run.begin));
  std::vector<ShardFigures> all(sum.figures.size());
  ranks.AllGather(std::as_bytes(mine), std::as_writable_bytes(std::span(all)));
  sum.figures = std::move(all);
  for (ops::AuxLosses::ExpertLoad& load : sum.loads) ranks.AllReduceSum(load.tokens);
  return sum;
}

StepResult Stepper::Compute(const data::Batch& batch, int64_t step, ops::Profile* profile) {
  profile_ = profile;
  updates_.Clear();
  gradients_.clear();
  if (parts_.provider != nullptr) parts_.provider->StartStep();
  optim::GradientTree tree(parts_.pool, parts_.isa, options_.shards);
  Sum sum = ComputeShards(batch, step, tree);
  {
    const ops::Timed timed(profile, "gradients", "reduction", "backward");
    gradients_ = tree.Finish(parts_.communicator);
    MergeObservations();
  }
  if (on_gradients_) {
    on_gradients_(step, ParameterNames(), gradients_);
    sum.norm = optim::NormOfParts(ParameterNames());
  }
  loads_ = sum.loads;
  StepResult result;
  double xent = 0, z_loss = 0;
  for (const ShardFigures& figures : sum.figures) {
    xent += figures.xent_sum;
    z_loss += figures.z_loss_sum;
    result.moe_lb_loss += figures.moe_lb_loss;
    result.mtp_loss += figures.mtp_loss;
  }
  result.total_weights = static_cast<double>(data::TargetWeights(batch));
  result.lm_loss = xent / (result.total_weights + 1e-8);
  result.z_loss = z_loss / (result.total_weights + 1e-8);
  result.loss = result.lm_loss + result.moe_lb_loss + result.mtp_loss;
  const ops::Timed timed(profile, "norms", "optimizer", "backward");
  for (size_t i = 0; i < gradients_.size(); ++i) {
    if (gradients_[i].defined() && !sum.norm.Has(i)) sum.norm.Take(parts_.pool, parts_.isa, i, gradients_[i]);
  }
  result.raw_grad_norm = sum.norm.Norm();
  clip_factor_ = optim::ClipFactor(result.raw_grad_norm, options_.clip_threshold);
  result.grad_norm = result.raw_grad_norm * clip_factor_;
  return result;
}

// What the shards of all ranks saw, merged by max: the same on every rank.
void Stepper::MergeObservations() {
  if (parts_.communicator.size() == 1) return;
  ops::UpdateSink merged;
  for (const auto& [name, value] : updates_.observations()) {
    Tensor copy = value.Clone();
    parts_.communicator.AllReduceMax(copy.MutableValues<float>());
    merged.Observe(name, copy);
  }
  updates_.Clear();
  for (const auto& [name, value] : merged.observations()) updates_.Observe(name, value);
}

double Stepper::Apply(double rate, ops::Profile* profile) {
  const ops::Timed timed(profile, "optimizer", "optimizer", "backward");
  const std::span<ops::Parameter* const> parameters = parts_.model.parameters();
  optim::NormOfParts norm(ParameterNames());
  const auto squares = [&](size_t i) { return norm.Slot(i, parameters[i]->tensor().size()); };
  parts_.optimizer.Step(parts_.pool, parts_.isa, gradients_, rate, clip_factor_, squares);
  gradients_.clear();
  AdvanceRecipe();
  for (const ops::Parameter* moved : BalanceExperts()) {
    norm.Take(parts_.pool, parts_.isa, index_.at(moved), moved->tensor());
  }
  return norm.Norm();
}

void Stepper::AdvanceRecipe() { quant::AdvanceState(parts_.plan, updates_, parts_.state); }

std::vector<const ops::Parameter*> Stepper::BalanceExperts() {
  std::vector<const ops::Parameter*> moved;
  if (options_.routed_bias_update_rate == 0) return moved;
  for (const ops::AuxLosses::ExpertLoad& load : loads_) {
    ops::Parameter* bias = parts_.model.parameter_set().Find(load.path + "/gate/bias");
    if (bias == nullptr) continue;
    optim::UpdateRoutingBias(load.tokens, options_.routed_bias_update_rate, std::get<Tensor>(bias->value));
    moved.push_back(bias);
  }
  return moved;
}

models::LossParts Stepper::Evaluate(const data::Batch& batch, int64_t shards) {
  const auto total_weights = static_cast<double>(data::TargetWeights(batch));
  profile_ = nullptr;
  if (parts_.provider != nullptr) parts_.provider->StartStep();
  models::LossParts sum;
  for (int64_t shard = 0; shard < shards; ++shard) {
    const ShardBatch part = ShardOf(batch, shard, shards);
    ops::Context context = MakeContext(0);
    const models::LossOptions options{.total_weights = total_weights,
                                      .shard_share = 1.0 / static_cast<double>(shards),
                                      .z_loss_multiplier = options_.z_loss_multiplier,
                                      .vocab_tiling = options_.vocab_tiling,
                                      .training = false};
    models::LossParts parts;
    models::Loss(context, parts_.model, part.inputs, part.targets, part.target_segmentation, part.rows, options,
                 &parts);
    sum.xent_sum += parts.xent_sum;
    sum.z_loss_sum += parts.z_loss_sum;
    sum.weights += parts.weights;
    sum.moe_lb_loss += parts.moe_lb_loss;
    sum.mtp_loss += parts.mtp_loss;
  }
  return sum;
}

StepResult Stepper::Replay(const data::Batch& batch, int64_t step, ops::Interceptor* interceptor) {
  ops::Interceptor* const own = std::exchange(interceptor_, interceptor);
  StepResult result;
  try {
    result = Compute(batch, step);
  } catch (...) {
    interceptor_ = own;
    throw;
  }
  interceptor_ = own;
  return result;
}

}  // namespace octavo::train
