// The architectures of llama.cpp that our models can be, and its names of tensors against those of plain model folders.
// Used by the way in (gguf.h) and the way out (gguf_export.h). Knows no files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace octavo::weights {

struct GgufArchitecture {
  std::string_view name;        // general.architecture
  std::string_view model_type;  // of plain folders. Keys of the file choose between those of one name
  bool pairs = false;           // rows of queries and keys turn neighbours there, halves in plain folders
};

// The architecture that models of a type are written as; nullptr: none.
const GgufArchitecture* FindGgufArchitecture(std::string_view model_type);
// Every name once.
std::vector<std::string_view> GgufArchitectureNames();

// "model.layers.3.mlp.up_proj.weight" -> "blk.3.ffn_up.weight"; one of many experts -> the tensor that holds them all,
// "blk.3.ffn_up_exps.weight". Empty when there is none.
std::string GgufNameOf(std::string_view hf, std::string_view model_type);

// The way back: one name, or one for each expert. Empty when the architecture has no such tensor.
std::vector<std::string> HfNamesOf(std::string_view gguf, std::string_view model_type, int64_t experts);

// "blk.12.attn_q.weight" -> "attn_q.weight", and 12; the name itself and nullopt when it is none of a layer.
struct GgufLayerName {
  std::optional<int64_t> layer;
  std::string_view rest;
};
GgufLayerName SplitGgufName(std::string_view name);

}  // namespace octavo::weights
