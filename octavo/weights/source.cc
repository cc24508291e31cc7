#include "octavo/weights/source.h"

#include <cstring>
#include <memory>

#include "octavo/base/check.h"
#include "octavo/base/error.h"
#include "octavo/base/mapped_file.h"
#include "octavo/checkpoint/safetensors.h"

namespace octavo::weights {
namespace {

// The file may lay a tensor at any byte: a copy gives it the alignment that kernels want.
Tensor Copy(const StoredTensor& stored) {
  Tensor tensor = Tensor::Empty(Shape(stored.shape), stored.dtype);
  if (!stored.bytes.empty()) std::memcpy(tensor.MutableRawData(), stored.bytes.data(), stored.bytes.size());
  ReleaseMapped(stored.bytes);
  return tensor;
}

// One index of an axis, straight from the file: a stack of layers need not be read as a whole for one of them.
Tensor CopySlice(const StoredTensor& stored, int axis, int64_t index) {
  const auto at = static_cast<size_t>(axis);
  std::vector<int64_t> dims = stored.shape;
  OCTAVO_CHECK(at < dims.size() && index >= 0 && index < dims[at]);
  const int64_t length = dims[at];
  dims.erase(dims.begin() + axis);
  Tensor tensor = Tensor::Empty(Shape(dims), stored.dtype);
  int64_t outer = 1;
  for (size_t i = 0; i < at; ++i) outer *= stored.shape[i];
  if (tensor.size() == 0) return tensor;
  const auto inner = static_cast<size_t>(tensor.bytes() / outer);
  for (int64_t o = 0; o < outer; ++o) {
    std::memcpy(tensor.MutableRawData() + static_cast<size_t>(o) * inner,
                stored.bytes.data() + static_cast<size_t>(o * length + index) * inner, inner);
  }
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
      SourceTensor tensor{Shape(stored.shape), stored.dtype, [file, at] { return Copy(*at); },
                          [file, at](int axis, int64_t index) { return CopySlice(*at, axis, index); }};
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
