// Names and layouts of transformers' files against ours: for each of our parameters, the tensors of a file that it is
// made of and how their axes lie. One list serves reading, writing and gradients. Knows no files.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/models/model_config.h"
#include "octavo/tensor/qarray.h"
#include "octavo/tensor/tensor.h"

namespace octavo::weights {

// One of our parameters, [in..., out...], or [count, in..., out...] for several tensors of a file.
struct HfPiece {
  std::string ours;
  std::vector<std::string> theirs;
  Shape in, out;
  bool transposed = false;  // theirs is [out, in], as torch.nn.Linear; else [in, out], or [out] without `in`
  bool stacked = false;     // experts: one of theirs for each index of a first axis
  bool to_pairs = false;    // rotary features: theirs turn halves, ours neighbours
  bool less_one = false;    // ours is theirs - 1 (norms of gpt3)

  Shape OurShape() const;
  Shape TheirShape() const;
};

// Every parameter of the model. `prefix_gpt2` goes before gpt2's names: "transformer." or, in old files, nothing.
std::vector<HfPiece> HfPieces(const std::string& model_type, const models::ModelConfig& config,
                              std::string_view gpt2_prefix = "transformer.");

// Tensors that files carry and no parameter is made of: masks, tables of frequencies.
bool IsHfBuffer(std::string_view name);

// Theirs -> ours, and back. Types are kept, except that `less_one` works in f32.
Tensor ImportPiece(const HfPiece& piece, std::span<const Tensor> theirs);
std::vector<Tensor> ExportPiece(const HfPiece& piece, const Tensor& ours);
// The same for codes; a reason instead when scales cannot follow.
std::optional<QArray> ImportPiece(const HfPiece& piece, std::span<const QArray> theirs, std::string* reason);

}  // namespace octavo::weights
