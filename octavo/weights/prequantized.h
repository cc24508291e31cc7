// Checkpoints that other tools quantized, as the tensors of the model before: every group of stored tensors (packed
// codes, scales, zero points …) becomes one logical tensor under the name of the plain file, "….q_proj.weight", which
// can be read as floats or as codes. Plain tensors stay what they are. Read: compressed-tensors (int8, int4, fp8),
// GPTQ, AWQ, fp8 with scales of blocks, mxfp4 experts, bitsandbytes (nf4, fp4, int8). Used by the reader of model
// folders (hf.h). Knows nothing of architectures.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "octavo/checkpoint/sharded.h"
#include "octavo/weights/lattice.h"

namespace octavo::weights {

struct LogicalTensor {
  Shape shape;
  DType dtype = DType::kF32;              // of what `read` gives: f32 for quantized ones
  std::function<Tensor()> read;           // the values
  std::function<Lattice()> read_lattice;  // empty for plain tensors
};

struct LogicalTensors {
  std::string where;   // the folder, for errors
  std::string method;  // "gptq", …; empty: nothing is quantized
  std::map<std::string, LogicalTensor> tensors;
  std::vector<std::string> notes;  // what was understood but is not used (static activation scales …)
};

// `config` is the quantization_config of config.json, or null. The files stay mapped while any tensor is kept. Unknown
// methods, parts without their partners and shapes that do not fit are file errors that name the tensor.
LogicalTensors OpenLogical(std::shared_ptr<const ShardedSafetensors> files, const nlohmann::json& config);

// For the readers of the single methods (prequantized_*.cc): the stored tensors not yet claimed.
class Claims {
 public:
  explicit Claims(std::shared_ptr<const ShardedSafetensors> files);

  const std::string where() const { return files_->folder().string(); }
  std::vector<std::string> NamesEndingWith(std::string_view suffix) const;  // unclaimed
  const StoredTensor* Find(const std::string& name) const;                  // claimed or not; nullptr: none
  // Claims a tensor that must be there, of this type and number of axes.
  const StoredTensor* Take(const std::string& name, std::initializer_list<DType> types, int rank);
  const StoredTensor* TakeIfThere(const std::string& name, std::initializer_list<DType> types, int rank);

  // One logical tensor made of claimed parts. `make` runs when it is read; it is run once here on headers only when the
  // shape is given.
  void Add(const std::string& name, const Shape& shape, std::function<Lattice()> make);
  void Note(std::string text) { result_.notes.push_back(std::move(text)); }

  // Everything unclaimed as plain tensors. Codes that nobody claimed are an error.
  LogicalTensors Finish(std::string method);

  std::shared_ptr<const ShardedSafetensors> files() const { return files_; }

 private:
  std::shared_ptr<const ShardedSafetensors> files_;
  std::map<std::string, const StoredTensor*> unclaimed_;
  LogicalTensors result_;
};

void ClaimCompressedTensors(Claims& claims, const nlohmann::json& config);  // prequantized_compressed.cc
void ClaimGptq(Claims& claims, const nlohmann::json& config);               // prequantized_gptq.cc
void ClaimAwq(Claims& claims, const nlohmann::json& config);                // prequantized_gptq.cc
void ClaimBlockFp8(Claims& claims, const nlohmann::json& config);           // prequantized_fp8.cc
void ClaimMxfp4(Claims& claims, const nlohmann::json& config);              // prequantized_fp8.cc
void ClaimBitsandbytes(Claims& claims, const nlohmann::json& config);       // prequantized_bnb.cc

// A stored tensor as one of ours; small floats as their codes.
Tensor CopyStored(const StoredTensor& stored);

// Codes of `bits` packed into 32-bit words, lowest first, along `axis` of a matrix; `count` codes along it in the end.
// `order` says which place of a word the k-th code has (nullptr: its own). Raw codes, 0 … 2^bits - 1, as u8.
Tensor UnpackWords(const StoredTensor& words, int bits, int axis, int64_t count, const int* order = nullptr);

}  // namespace octavo::weights
