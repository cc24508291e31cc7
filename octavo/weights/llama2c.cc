#include "octavo/weights/llama2c.h"

#include <cmath>
#include <cstring>

#include "octavo/checkpoint/llama2c.h"
#include "octavo/weights/gguf.h"

namespace octavo::weights {
namespace {

struct Opened {
  explicit Opened(const std::filesystem::path& path) : file(path), content(ParseLlama2c(file.bytes(), path.string())) {}
  MappedFile file;
  Llama2cContent content;
};

Tensor Copy(std::span<const std::byte> bytes, const Shape& shape, DType dtype) {
  Tensor tensor = Tensor::Empty(shape, dtype);
  std::memcpy(tensor.MutableRawData(), bytes.data(), bytes.size());
  return tensor;
}

// Rows of queries and keys turn neighbours here, halves in plain model folders.
int64_t PermutedHeads(const Llama2cTensor& tensor, const Llama2cContent& content) {
  if (tensor.name.ends_with("q_proj.weight")) return content.heads;
  return tensor.name.ends_with("k_proj.weight") ? content.kv_heads : 0;
}

LogicalTensor MakeLogical(const std::shared_ptr<const Opened>& opened, const Llama2cTensor& tensor) {
  const int64_t heads = PermutedHeads(tensor, opened->content);
  LogicalTensor logical;
  logical.shape = Shape(tensor.shape);
  if (tensor.group == 0) {
    logical.read = [opened, tensor, heads] {
      const Tensor values = Copy(tensor.bytes, Shape(tensor.shape), DType::kF32);
      return heads > 0 ? RowsToHalves(values, heads) : values;
    };
    return logical;
  }
  logical.read_lattice = [opened, tensor, heads] {
    Lattice lattice;
    const int64_t rows = tensor.shape[0], columns = tensor.shape[1];
    lattice.format = Format::kInt8;
    // Groups run through the flattened matrix: rows that are not whole groups share one (w2 of odd widths).
    const bool in_rows = columns % tensor.group == 0;
    const int64_t groups = rows * columns / tensor.group;
    lattice.codes = Copy(tensor.bytes, in_rows ? Shape{rows, columns} : Shape{groups, tensor.group}, DType::kI8);
    lattice.scale = Copy(tensor.scales, in_rows ? Shape{rows, columns / tensor.group} : Shape{groups, 1}, DType::kF32);
    lattice.tile_columns = tensor.group;
    lattice.shape = tensor.shape;
    if (heads > 0) {
      lattice.codes = RowsToHalves(lattice.codes, heads);
      lattice.scale = RowsToHalves(lattice.scale, heads);
    }
    return lattice;
  };
  logical.read = [read = logical.read_lattice] { return Dequantize(read()); };
  return logical;
}

}  // namespace

HfModel OpenLlama2c(const std::filesystem::path& file) {
  const auto opened = std::make_shared<const Opened>(file);
  const Llama2cContent& content = opened->content;
  HfModel model;
  model.config.model_type = "llama";
  models::ModelConfig& c = model.config.config;
  c.model_name = "llama";
  c.vocab_size = content.vocab_size;
  c.emb_dim = content.dim;
  c.mlp_dim = content.hidden_dim;
  c.num_decoder_layers = content.layers;
  c.num_query_heads = content.heads;
  c.num_kv_heads = content.kv_heads;
  c.head_dim = content.dim / content.heads;
  c.max_target_length = c.max_position_embeddings = content.length;
  c.normalization_layer_epsilon = 1e-5;
  c.logits_via_embedding = content.tied;
  c.normalize_embedding_logits = false;
  c.logits_dot_in_fp32 = true;  // a tied head is not rounded
  c.query_pre_attn_scalar = 1 / std::sqrt(static_cast<double>(c.head_dim));
  model.tensors.where = file.string();
  model.tensors.method = content.version == 2 ? "llama2.c int8" : "";
  for (const Llama2cTensor& tensor : content.tensors) {
    model.tensors.tensors.emplace(tensor.name, MakeLogical(opened, tensor));
  }
  MatchTensors(model, file.string());
  return model;
}

}  // namespace octavo::weights
