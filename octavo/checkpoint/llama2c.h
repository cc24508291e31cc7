// Model files of llama2.c: the first form (seven sizes and f32 weights), and the forms with a magic number, in f32
// (version 1) or int8 with a scale for each group (version 2). The file is mapped; tensors are spans of its bytes,
// under the names of llama files. Every size is checked against the file before it is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "octavo/base/mapped_file.h"

namespace octavo {

struct Llama2cTensor {
  std::string name;            // "model.layers.0.self_attn.q_proj.weight"
  std::vector<int64_t> shape;  // [out, in], or [width]
  int64_t group = 0;           // > 0: int8 codes, a scale for each run of so many; else f32
  std::span<const std::byte> bytes, scales;
};

struct Llama2cContent {
  int version = 0;  // 0: without a magic number
  int64_t dim = 0, hidden_dim = 0, layers = 0, heads = 0, kv_heads = 0, vocab_size = 0, length = 0;
  bool tied = true;
  std::vector<Llama2cTensor> tensors;
};

// True for a file that begins with the magic number, or with sizes that explain its length to the byte.
bool LooksLikeLlama2c(std::span<const std::byte> bytes);

// `file` names it in errors. The tensors point into `bytes`.
Llama2cContent ParseLlama2c(std::span<const std::byte> bytes, const std::string& file);

}  // namespace octavo
