#include "octavo/models/model.h"

#include <utility>

#include "octavo/base/error.h"
#include "octavo/models/decoder.h"
#include "octavo/ops/add.h"
#include "octavo/ops/elementwise.h"
#include "octavo/ops/permute.h"
#include "octavo/ops/remat.h"

namespace octavo::models {
namespace {

using Maker = std::unique_ptr<Model> (*)(const ModelConfig&);

// One line per architecture.
constexpr std::pair<std::string_view, Maker> kMakers[] = {
    {"default", MakeLlama}, {"llama2", MakeLlama},    {"mistral", MakeLlama},
    {"gpt3", MakeGpt3},     {"mixtral", MakeMixtral}, {"deepseek", MakeDeepSeek},
    {"qwen3", MakeQwen3},   {"qwen3_moe", MakeQwen3}, {"gemma2", MakeGemma2},
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
    if (block == config.decoder_block) return make(config);
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

ops::Var Forward(ops::Context& context, Model& model, const Tensor& tokens, const ops::Rows& rows) {
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
  const ops::Var hidden = Forward(context, model, tokens, rows);
  const ops::LossSpec spec{options.z_loss_multiplier, 1 / (options.total_weights + 1e-8), options.vocab_tiling};
  ops::LossSums sums;
  ops::Var loss = model.HeadLoss(context, hidden, targets, target_segmentation, spec, &sums);
  parts->xent_sum = sums.xent;
  parts->z_loss_sum = sums.z_loss;
  parts->weights = sums.weights;
  parts->loads = std::move(aux.loads);
  if (aux.load_balance.empty() || model.config().load_balance_loss_weight == 0) return loss;
  // The mean over layers, weighted; a shard counts as much as it has rows.
  ops::Var sum = aux.load_balance[0];
  for (size_t i = 1; i < aux.load_balance.size(); ++i) sum = ops::Add(context, sum, aux.load_balance[i]);
  const double factor =
      model.config().load_balance_loss_weight * options.shard_share / static_cast<double>(aux.load_balance.size());
  const ops::Var balance = ops::Reshape(context, ops::Scale(context, sum, factor), Shape{});
  if (!balance.value.is_meta()) parts->moe_lb_loss = static_cast<double>(balance.value.ToVector<float>()[0]);
  return ops::Add(context, loss, balance);
}

}  // namespace octavo::models
