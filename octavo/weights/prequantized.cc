#include "octavo/weights/prequantized.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "octavo/base/check.h"
#include "octavo/base/error.h"
#include "octavo/base/mapped_file.h"

namespace octavo::weights {
namespace {

using Json = nlohmann::json;

struct Method {
  std::string_view name;
  void (*claim)(Claims&, const Json&);
};

constexpr Method kMethods[] = {
    {"compressed-tensors", ClaimCompressedTensors},
    {"gptq", ClaimGptq},
    {"awq", ClaimAwq},
    {"fp8", ClaimBlockFp8},
    {"mxfp4", ClaimMxfp4},
    {"bitsandbytes", ClaimBitsandbytes},
};

const Method& FindMethod(const Json& config, const std::string& where) {
  const auto found = config.is_object() ? config.find("quant_method") : config.end();
  const std::string name =
      config.is_object() && found != config.end() && found->is_string() ? found->get<std::string>() : "";
  for (const Method& method : kMethods) {
    if (method.name == name) return method;
  }
  std::string known;
  for (const Method& method : kMethods) known += fmt::format(" {}", method.name);
  throw Error(ErrorCode::kFile, fmt::format("{}: unsupported quant_method '{}'", where, name), "known:" + known);
}

}  // namespace

Tensor CopyStored(const StoredTensor& stored) {
  OCTAVO_CHECK(!stored.packed);
  Tensor tensor = Tensor::Empty(Shape(stored.shape), stored.dtype);
  if (!stored.bytes.empty()) std::memcpy(tensor.MutableRawData(), stored.bytes.data(), stored.bytes.size());
  ReleaseMapped(stored.bytes);
  return tensor;
}

Tensor UnpackWords(const StoredTensor& words, int bits, int axis, int64_t count, const int* order) {
  OCTAVO_CHECK(words.shape.size() == 2 && SizeOf(words.dtype) == 4);
  const int per_word = 32 / bits;
  const uint32_t mask = (1u << bits) - 1;
  const int64_t rows = axis == 0 ? count : words.shape[0], columns = axis == 1 ? count : words.shape[1];
  const int64_t stored = words.shape[static_cast<size_t>(axis)];
  if ((count + per_word - 1) / per_word != stored) {
    ThrowFile("'{}': {} words for {} codes of {} bits", words.name, stored, count, bits);
  }
  const std::vector<uint32_t> data = words.CopyAs<uint32_t>();
  Tensor codes = Tensor::Empty(Shape{rows, columns}, DType::kU8);
  uint8_t* out = codes.MutableData<uint8_t>();
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      const int64_t along = axis == 0 ? r : c;
      const int64_t word = axis == 0 ? along / per_word * columns + c : r * stored + along / per_word;
      const int place = order == nullptr ? static_cast<int>(along % per_word) : order[along % per_word];
      *out++ = static_cast<uint8_t>(data[static_cast<size_t>(word)] >> (place * bits) & mask);
    }
  }
  return codes;
}

Claims::Claims(std::shared_ptr<const ShardedSafetensors> files) : files_(std::move(files)) {
  for (const auto& [name, tensor] : files_->tensors()) unclaimed_.emplace(name, tensor);
}

std::vector<std::string> Claims::NamesEndingWith(std::string_view suffix) const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : unclaimed_) {
    if (name.ends_with(suffix)) names.push_back(name);
  }
  return names;
}

const StoredTensor* Claims::Find(const std::string& name) const { return files_->Find(name); }

const StoredTensor* Claims::Take(const std::string& name, std::initializer_list<DType> types, int rank) {
  const StoredTensor* tensor = TakeIfThere(name, types, rank);
  if (tensor == nullptr) ThrowFile("{}: '{}' is missing, though its partners are there", where(), name);
  return tensor;
}

const StoredTensor* Claims::TakeIfThere(const std::string& name, std::initializer_list<DType> types, int rank) {
  const auto found = unclaimed_.find(name);
  if (found == unclaimed_.end()) return nullptr;
  const StoredTensor* tensor = found->second;
  const bool fits = std::find(types.begin(), types.end(), tensor->dtype) != types.end() &&
                    (rank < 0 || static_cast<int>(tensor->shape.size()) == rank) && !tensor->packed;
  if (!fits) {
    ThrowFile("{}: '{}' has an unexpected type or shape: {}[{}]", where(), name, NameOf(tensor->dtype),
              fmt::join(tensor->shape, ", "));
  }
  unclaimed_.erase(found);
  return tensor;
}

void Claims::Add(const std::string& name, const Shape& shape, std::function<Lattice()> make) {
  LogicalTensor tensor;
  tensor.shape = shape;
  tensor.dtype = DType::kF32;
  // The files are kept by the closure: the tensors that it reads point into them.
  tensor.read_lattice = [files = files_, make = std::move(make), name] {
    Lattice lattice = make();
    Validate(lattice, fmt::format("{}: '{}'", files->folder().string(), name));
    return lattice;
  };
  tensor.read = [lattice = tensor.read_lattice] { return Dequantize(lattice()); };
  if (!result_.tensors.emplace(name, std::move(tensor)).second) ThrowFile("{}: '{}' is there twice", where(), name);
}

LogicalTensors Claims::Finish(std::string method) {
  for (const auto& [name, stored] : unclaimed_) {
    const bool plain = IsFloat(stored->dtype) && !stored->format && !stored->packed;
    // Buffers such as masks are whole numbers or truth values; who knows the architecture decides about them.
    if (!plain && (stored->format || stored->packed)) {
      ThrowFile("{}: '{}' holds codes without scales that are known", where(), name);
    }
    LogicalTensor tensor;
    tensor.shape = Shape(stored->shape);
    tensor.dtype = stored->dtype;
    tensor.read = [files = files_, at = stored] { return CopyStored(*at); };
    if (!result_.tensors.emplace(name, std::move(tensor)).second) ThrowFile("{}: '{}' is there twice", where(), name);
  }
  result_.where = where();
  result_.method = std::move(method);
  return std::move(result_);
}

LogicalTensors OpenLogical(std::shared_ptr<const ShardedSafetensors> files, const Json& config) {
  Claims claims(std::move(files));
  if (config.is_null()) return claims.Finish("");
  const Method& method = FindMethod(config, claims.where());
  method.claim(claims, config);
  return claims.Finish(std::string(method.name));
}

}  // namespace octavo::weights
