#include "octavo/weights/source.h"

#include <cstring>
#include <memory>

#include "octavo/base/error.h"
#include "octavo/checkpoint/safetensors.h"

namespace octavo::weights {
namespace {

// The file may lay a tensor at any byte: a copy gives it the alignment that kernels want.
Tensor Copy(const StoredTensor& stored) {
  Tensor tensor = Tensor::Empty(Shape(stored.shape), stored.dtype);
  if (!stored.bytes.empty()) std::memcpy(tensor.MutableRawData(), stored.bytes.data(), stored.bytes.size());
  return tensor;
}

}  // namespace

Source Source::Under(std::string_view prefix) const {
  Source part;
  part.where = where;
  for (const auto& [name, tensor] : tensors) {
    if (name.starts_with(prefix)) part.tensors.emplace(name.substr(prefix.size()), tensor);
  }
  return part;
}

Source OpenSafetensors(std::span<const std::filesystem::path> files) {
  Source source;
  for (const std::filesystem::path& path : files) {
    const auto file = std::make_shared<const SafetensorsFile>(path);
    source.where += (source.where.empty() ? "" : ", ") + path.string();
    for (const StoredTensor& stored : file->tensors()) {
      if (stored.packed || stored.format) {
        ThrowFile("{}: '{}' holds codes of a small format, which are not weights by themselves", path.string(),
                  stored.name);
      }
      const StoredTensor* at = &stored;  // lives as long as the file
      SourceTensor tensor{Shape(stored.shape), stored.dtype, [file, at] { return Copy(*at); }};
      if (!source.tensors.emplace(stored.name, std::move(tensor)).second) {
        ThrowFile("{}: '{}' is in another file of the same checkpoint too", path.string(), stored.name);
      }
    }
  }
  return source;
}

Source SourceOf(const std::map<std::string, Tensor>& tensors, std::string where) {
  Source source;
  source.where = std::move(where);
  for (const auto& [name, tensor] : tensors) {
    const Tensor kept = tensor;
    source.tensors.emplace(name, SourceTensor{kept.shape(), kept.dtype(), [kept] { return kept; }});
  }
  return source;
}

}  // namespace octavo::weights
