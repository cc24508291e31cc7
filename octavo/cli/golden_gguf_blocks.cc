// Folders with blocks of GGML types and their values: a manifest of kind "gguf blocks", T.bytes with T.values for a
// type T, and quantize.T with the blocks that quantize.input must become.
#include <nlohmann/json.hpp>

#include "octavo/base/error.h"
#include "octavo/checkpoint/ggml_types.h"
#include "octavo/cli/golden.h"
#include "octavo/cli/golden_manifest.h"

namespace octavo {
namespace {

const GgmlTypeInfo& TypeByName(std::string_view name) {
  const GgmlTypeInfo* type = FindGgmlType(name);
  if (type == nullptr) ThrowFile("no GGML type '{}'", name);
  return *type;
}

// [blocks, bytes] -> [blocks, values].
Tensor Decoded(const GgmlTypeInfo& type, const Tensor& blocks) {
  if (blocks.dtype() != DType::kU8 || blocks.rank() != 2 || blocks.dim(1) % type.bytes != 0) {
    ThrowFile("{} is not rows of {} blocks", blocks.ToString(), type.name);
  }
  Tensor values = Tensor::Empty(Shape{blocks.dim(0), blocks.dim(1) / type.bytes * type.block}, DType::kF32);
  DecodeBlocks(type.type, {blocks.RawData(), static_cast<size_t>(blocks.bytes())}, values.MutableValues<float>());
  return values;
}

Tensor Quantized(const GgmlTypeInfo& type, const Tensor& values) {
  if (values.dtype() != DType::kF32 || values.rank() != 2 || values.dim(1) % type.block != 0) {
    ThrowFile("{} is not rows for {} blocks", values.ToString(), type.name);
  }
  Tensor blocks = Tensor::Empty(Shape{values.dim(0), values.dim(1) / type.block * type.bytes}, DType::kU8);
  QuantizeBlocks(type.type, values.Values<float>(), {blocks.MutableRawData(), static_cast<size_t>(blocks.bytes())});
  return blocks;
}

Mismatch RunOne(const SafetensorsFile& file, const std::string& name) {
  constexpr std::string_view kQuantize = "quantize.", kValues = ".values";
  const Tensor expected = CopyOf(file.At(name));
  if (name.starts_with(kQuantize)) {
    const GgmlTypeInfo& type = TypeByName(std::string_view(name).substr(kQuantize.size()));
    return CompareBits(expected, Quantized(type, CopyOf(file.At("quantize.input"))));
  }
  if (!name.ends_with(kValues)) ThrowFile("nothing is known about '{}'", name);
  const std::string type_name = name.substr(0, name.size() - kValues.size());
  return CompareBits(expected, Decoded(TypeByName(type_name), CopyOf(file.At(type_name + ".bytes"))));
}

bool Accepts(const std::filesystem::path& folder) { return ManifestKind(folder) == "gguf blocks"; }

GoldenFolderResult Run(const std::filesystem::path& folder, ThreadPool&) {
  const SafetensorsFile file(folder / "expected.safetensors");
  GoldenFolderResult result;
  for (const StoredTensor& stored : file.tensors()) {
    if (stored.name == "quantize.input" || stored.name.ends_with(".bytes")) continue;
    try {
      if (const Mismatch mismatch = RunOne(file, stored.name)) {
        result.failures.push_back({stored.name, *mismatch});
      } else {
        ++result.passed;
      }
    } catch (const Error& error) {
      result.failures.push_back({stored.name, error.message()});
    }
  }
  return result;
}

}  // namespace

GoldenFolderKind GgufBlocksFolderKind() { return {"GGML blocks", Accepts, Run}; }

}  // namespace octavo
