#include "octavo/models/model.h"

#include <utility>

#include "octavo/base/error.h"
#include "octavo/models/decoder.h"
#include "octavo/models/mtp.h"
#include "octavo/ops/add.h"
#include "octavo/ops/elementwise.h"
#include "octavo/ops/permute.h"
#include "octavo/ops/remat.h"

namespace octavo::models {
namespace {

using Maker = std::unique_ptr<Model> (*)(const ModelConfig&);

// One line per architecture.
constexpr std::pair<std::string_view, Maker> kMakers[] = {
    {"default", MakeLlama},   {"llama2", MakeLlama},    {"mistral", MakeLlama},     {"qwen2", MakeQwen2},
    {"gpt3", MakeGpt3},       {"mixtral", MakeMixtral}, {"deepseek", MakeDeepSeek}, {"qwen3", MakeQwen3},
    {"qwen3_moe", MakeQwen3}, {"gemma", MakeGemma},     {"gemma2", MakeGemma2},
};

// Puts a field of the context back at the end of a scope.
template <typename T>
class Restore {
 public:
  Restore(T& field, T value) : field_(field), before_(std::exchange(field, value)) {}
  ~Restore() { field_ = before_; }
  Restore(const Restore&) = delete;
  Restore& operator=(const Restore&) = delete;

 private:
  T& field_;
  T before_;
};

}  // namespace

std::unique_ptr<Model> MakeModel(const ModelConfig& config) {
  std::string known;
  for (const auto& [block, make] : kMakers) {
    if (block == config.decoder_block) {
      std::unique_ptr<Model> model = make(config);
      if (model->mtp_layers() != config.mtp_num_layers) {
        throw Error(ErrorCode::kUsage,
                    fmt::format("mtp_num_layers={}: decoder_block {} has no multi-token prediction",
                                config.mtp_num_layers, config.decoder_block),
                    "deepseek has it; mtp_num_layers=0 trains without");
      }
      return model;
    }
    known += known.empty() ? "" : " ";
    known += block;
  }
  throw Error(ErrorCode::kUsage, fmt::format("unsupported architecture: decoder_block={}", config.decoder_block),
              "known: " + known);
}

int64_t ParameterCount(const Model& model) {
  int64_t count = 0;
  for (const ops::Parameter* parameter : model.parameters()) count += parameter->shape().size();
  return count;
}

namespace {

// The hidden states behind the last layer.
ops::Var Body(ops::Context& context, Model& model, const Tensor& tokens, const ops::Rows& rows) {
  context.StartModel();
  // Replays of layers outlive this call, so they share a copy.
  const auto shared = std::make_shared<const ops::Rows>(rows);
  const Restore<const ops::Rows*> in_rows(context.rows, shared.get());
  ops::Var x = model.Embed(context, tokens, *shared);
  for (int i = 0; i < model.layers(); ++i) {
    x = ops::Checkpoint(context, x, [&model, i, shared](ops::Context& inside, const ops::Var& in) {
      return model.Layer(inside, i, in, *shared);
    });
  }
  return x;
}

// Balance losses of all layers as one: their mean, weighted; a shard counts as much as it has rows.
ops::Var BalanceLossOf(ops::Context& context, const ops::AuxLosses& aux, double weight, double shard_share) {
  ops::Var sum = aux.load_balance[0];
  for (size_t i = 1; i < aux.load_balance.size(); ++i) sum = ops::Add(context, sum, aux.load_balance[i]);
  const double factor = weight * shard_share / static_cast<double>(aux.load_balance.size());
  return ops::Reshape(context, ops::Scale(context, sum, factor), Shape{});
}

}  // namespace

ops::Var Forward(ops::Context& context, Model& model, const Tensor& tokens, const ops::Rows& rows) {
  const ops::Var x = Body(context, model, tokens, rows);
  const Restore<const ops::Rows*> in_rows(context.rows, &rows);
  return model.Norm(context, x);
}

ops::Var Loss(ops::Context& context, Model& model, const Tensor& tokens, const Tensor& targets,
              const Tensor& target_segmentation, const ops::Rows& rows, const LossOptions& options, LossParts* parts) {
  LossParts local;
  if (parts == nullptr) parts = &local;
  ops::AuxLosses aux;
  const Restore<ops::AuxLosses*> in_aux(context.aux, &aux);
  const Restore<bool> in_training(context.training, options.training);
  const Restore<const ops::Rows*> in_rows(context.rows, &rows);
  const ops::Var body = Body(context, model, tokens, rows);
  const ops::LossSpec spec{options.z_loss_multiplier, 1 / (options.total_weights + 1e-8), options.vocab_tiling};
  ops::LossSums sums;
  ops::Var loss = model.HeadLoss(context, model.Norm(context, body), targets, target_segmentation, spec, &sums);
  parts->xent_sum = sums.xent;
  parts->z_loss_sum = sums.z_loss;
  parts->weights = sums.weights;
  parts->loads = std::move(aux.loads);
  const double balance_weight = model.config().load_balance_loss_weight;
  if (!aux.load_balance.empty() && balance_weight != 0) {
    const ops::Var balance = BalanceLossOf(context, aux, balance_weight, options.shard_share);
    if (!balance.value.is_meta()) parts->moe_lb_loss = static_cast<double>(balance.value.ToVector<float>()[0]);
    loss = ops::Add(context, loss, balance);
  }
  if (model.mtp_layers() == 0 || !options.training) return loss;
  // The reference leaves the experts of these layers out of its balancing.
  const Restore<ops::AuxLosses*> no_aux(context.aux, nullptr);
  const double scale = model.config().mtp_loss_scaling_factor / (options.mtp_weights + 1e-8);
  const ops::Var further = MtpLoss(context, model, body, {tokens, targets, target_segmentation, rows}, scale,
                                   options.vocab_tiling, &parts->mtp_loss);
  parts->mtp_loss *= scale;
  return ops::Add(context, loss, further);
}

}  // namespace octavo::models
