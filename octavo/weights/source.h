// Named tensors that somebody stored: what weights are restored from. The names, shapes and types are known at once,
// the values are read when they are asked for, one tensor at a time, so that a checkpoint need not fit in memory twice.
// Used by the golden runner, trainer, converter and engine. Does not interpret names.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>

#include "octavo/tensor/tensor.h"

namespace octavo::weights {

struct SourceTensor {
  Shape shape;
  DType dtype = DType::kF32;
  std::function<Tensor()> read;  // contiguous or not; called at most once per use
  // One index of an axis, without the axis, for stacks of layers; empty: `read` and select.
  std::function<Tensor(int, int64_t)> read_slice = {};
  std::string stack = {};  // the stored tensor that this one is a layer of; empty: stored by itself
};

struct Source {
  std::string where;  // for errors: a file or folder
  std::map<std::string, SourceTensor> tensors;

  // What begins with `prefix`, without it.
  Source Under(std::string_view prefix) const;
};

// All tensors of safetensors files; the files stay mapped as long as the source or a copy of it lives. A name that two
// files hold, and a packed or small-float tensor, is a file error.
Source OpenSafetensors(std::span<const std::filesystem::path> files);

// Tensors that are in memory.
Source SourceOf(const std::map<std::string, Tensor>& tensors, std::string where);

}  // namespace octavo::weights
