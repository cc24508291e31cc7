// What the decoder models of this folder share: token embedding, final norm, tied or separate head, dropout in the
// usual places. A model derives from it and writes its layers.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "octavo/models/model.h"
#include "octavo/nn/attention.h"
#include "octavo/nn/embedder.h"
#include "octavo/nn/linear.h"
#include "octavo/nn/mlp.h"
#include "octavo/nn/norm.h"
#include "octavo/ops/loss.h"
#include "octavo/ops/rope.h"

namespace octavo::models {

class Decoder : public Model {
 public:
  ops::Var Embed(ops::Context& context, const Tensor& tokens, const ops::Rows& rows) override;
  int layers() const override { return static_cast<int>(config().num_decoder_layers); }
  ops::Var Norm(ops::Context& context, const ops::Var& x) override;
  ops::Var Logits(ops::Context& context, const ops::Var& hidden) override;
  ops::Var HeadLoss(ops::Context& context, const ops::Var& hidden, const Tensor& targets, const Tensor& segmentation,
                    const ops::LossSpec& spec, ops::LossSums* sums) override;

 protected:
  enum class NormKind { kRms, kLayer };
  explicit Decoder(const ModelConfig& config);

  // In this order, so that parameters come as they are used: the tables first, the layers, then norm and head.
  void MakeEmbedding();
  void MakeHead(NormKind norm);

  nn::Builder Root() { return nn::Builder(set_, "", config().weight_dtype, config().dtype); }
  nn::Builder DecoderBuilder() { return Root().Child("decoder"); }
  double DropoutRate() const { return config().enable_dropout ? config().dropout_rate : 0; }

 private:
  const ops::Parameter& Head() const;
  ops::HeadOptions HeadForm() const;

  std::optional<nn::Embedder> tokens_, positions_;
  std::optional<nn::Norm> norm_;
  ops::Parameter* head_ = nullptr;  // logits_dense/kernel; null when tied
};

// Rotary positions as the config describes them, over `rotary_dim` features.
kernels::RopeConfig RopeConfigOf(const ModelConfig& config, int64_t rotary_dim);
kernels::RopeLayout RopeLayoutOf(const ModelConfig& config);

// The MLP of a layer: mlp_dim, activations, bias, fusion and dropout of the config.
nn::MlpOptions MlpOptionsOf(const ModelConfig& config);
nn::AttentionOptions AttentionOptionsOf(const ModelConfig& config);
// An RMS norm over emb_dim features.
nn::Norm RmsNormOf(const nn::Builder& at, std::string_view name, const ModelConfig& config);

std::unique_ptr<Model> MakeGpt3(const ModelConfig& config);
std::unique_ptr<Model> MakeLlama(const ModelConfig& config);
std::unique_ptr<Model> MakeQwen2(const ModelConfig& config);
std::unique_ptr<Model> MakeMixtral(const ModelConfig& config);
std::unique_ptr<Model> MakeDeepSeek(const ModelConfig& config);
std::unique_ptr<Model> MakeQwen3(const ModelConfig& config);
std::unique_ptr<Model> MakeGemma(const ModelConfig& config);
std::unique_ptr<Model> MakeGemma2(const ModelConfig& config);

}  // namespace octavo::models
