// A decoder language model: parameters with MaxText's names and a forward pass in the pieces that the trainer, remat
// and the engine need. One file per architecture derives from it. It knows nothing of quantization, files or caches:
// the interceptor of the Context, the loader and the engine do.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "octavo/base/rng.h"
#include "octavo/base/thread_pool.h"
#include "octavo/models/model_config.h"
#include "octavo/nn/parameters.h"
#include "octavo/ops/aux_losses.h"
#include "octavo/ops/context.h"
#include "octavo/ops/loss.h"
#include "octavo/ops/parameter.h"
#include "octavo/ops/rows.h"
#include "octavo/ops/var.h"

namespace octavo::models {

class Model {
 public:
  explicit Model(const ModelConfig& config) : config_(config) {}
  virtual ~Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const ModelConfig& config() const { return config_; }
  // In a fixed order; names are unrolled and without "params/": "decoder/layers_0/mlp/wi_0/kernel".
  std::span<ops::Parameter* const> parameters() const { return set_.all(); }
  const nn::ParameterSet& parameter_set() const { return set_; }

  virtual ops::Var Embed(ops::Context& context, const Tensor& tokens, const ops::Rows& rows) = 0;  // [B, T, E]
  virtual int layers() const = 0;
  virtual ops::Var Layer(ops::Context& context, int index, const ops::Var& x, const ops::Rows& rows) = 0;
  virtual ops::Var Norm(ops::Context& context, const ops::Var& x) = 0;         // decoder_norm
  virtual ops::Var Logits(ops::Context& context, const ops::Var& hidden) = 0;  // [B, T, V] f32
  // The head and its loss in one (ops/loss.h).
  virtual ops::Var HeadLoss(ops::Context& context, const ops::Var& hidden, const Tensor& targets,
                            const Tensor& segmentation, const ops::LossSpec& spec, ops::LossSums* sums) = 0;

  // Multi-token prediction (DeepSeek V3, section 2.2): layers that training alone runs, each for the token after that
  // of the one before. Layer k, counted from 1, takes the hidden states of layer k - 1 (at first those of the model
  // before its last norm) and the embedded tokens k places further on; [B, T, E] each.
  virtual int mtp_layers() const { return 0; }
  virtual ops::Var MtpLayer(ops::Context& context, int k, const ops::Var& hidden, const ops::Var& embedded,
                            const ops::Rows& rows);

 protected:
  nn::ParameterSet set_;

 private:
  ModelConfig config_;
};

// By decoder_block. Parameters are meta tensors until they are loaded or initialized.
std::unique_ptr<Model> MakeModel(const ModelConfig& config);

// Draws every parameter by its own rule, from a stream keyed by its name: the order and the others do not matter.
void Initialize(Model& model, RngKey key, ThreadPool& pool);

int64_t ParameterCount(const Model& model);

// Embed, the layers (under the remat policy of the context) and the final norm: [B, T, E].
ops::Var Forward(ops::Context& context, Model& model, const Tensor& tokens, const ops::Rows& rows);

struct LossParts {
  double xent_sum = 0, z_loss_sum = 0, weights = 0;  // xent_sum includes the z-loss, as the reference's does
  double moe_lb_loss = 0;                            // already weighted
  double mtp_loss = 0;
  std::vector<ops::AuxLosses::ExpertLoad> loads;
};

struct LossOptions {
  double total_weights = 0;  // of the whole global batch
  double mtp_weights = 0;    // the same of what the layers of multi-token prediction predict (MtpWeights)
  double shard_share = 1;    // rows of this shard / rows of the batch: aux losses are means
  double z_loss_multiplier = 0;
  int vocab_tiling = 1;
  bool training = true;  // dropout on
};

// How many targets `layers` layers of multi-token prediction have: layer k that of the token k places further on, where
// it belongs to the same segment. target_segmentation i32 [B, T].
int64_t MtpWeights(const Tensor& target_segmentation, int layers);

// One scalar for one shard: (cross-entropy with z-loss) / (total_weights + 1e-8) + auxiliary losses, in training also
// mtp_loss_scaling_factor * (cross-entropy of multi-token prediction) / (mtp_weights + 1e-8).
ops::Var Loss(ops::Context& context, Model& model, const Tensor& tokens, const Tensor& targets,
              const Tensor& target_segmentation, const ops::Rows& rows, const LossOptions& options, LossParts* parts);

}  // namespace octavo::models
