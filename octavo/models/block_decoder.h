// A decoder whose layers are all alike: rotary positions, one Block after the other, an RMS norm at the end. A model
// file writes its Block, constructed from (builder, config, rope) and called with (context, x, rows), and little else.
#pragma once

#include <deque>
#include <memory>
#include <string>

#include "octavo/models/decoder.h"
#include "octavo/ops/elementwise.h"

namespace octavo::models {

template <typename Block>
class BlockDecoder : public Decoder {
 public:
  explicit BlockDecoder(const ModelConfig& config) : Decoder(config) {
    MakeEmbedding();
    const auto rope = std::make_shared<ops::RopeTable>(RopeConfigOf(config, config.head_dim));
    for (int64_t i = 0; i < config.num_decoder_layers; ++i) {
      blocks_.emplace_back(DecoderBuilder().Child("layers_" + std::to_string(i)), config, rope);
    }
    MakeHead(NormKind::kRms);
  }

  ops::Var Layer(ops::Context& context, int index, const ops::Var& x, const ops::Rows& rows) override {
    const ops::Scope decoder(context, "decoder"), layer(context, "layers_" + std::to_string(index));
    const ops::Var out = blocks_[static_cast<size_t>(index)](context, x, rows);
    return ops::Dropout(context, out, DropoutRate(), "layer_dropout");
  }

 private:
  std::deque<Block> blocks_;
};

}  // namespace octavo::models
