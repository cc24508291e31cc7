// bitsandbytes: int8 rows with their largest magnitudes (SCB), or nf4 / fp4 codes in blocks of the flattened weight
// whose scales may be quantized again.
#include <cmath>
#include <nlohmann/json.hpp>

#include "octavo/base/error.h"
#include "octavo/base/float_mode.h"
#include "octavo/checkpoint/strict_json.h"
#include "octavo/weights/prequantized.h"

namespace octavo::weights {
namespace {

using Json = nlohmann::json;

Lattice Int8Lattice(const StoredTensor& codes, const StoredTensor& maxima) {
  Lattice lattice;
  lattice.format = Format::kInt8;
  lattice.codes = CopyStored(codes);
  lattice.scale = CopyStored(maxima).Reshape({-1, 1});
  lattice.divisor = 127;
  lattice.tile_columns = codes.shape[1];
  lattice.shape = codes.shape;
  return lattice;
}

// What the JSON beside a 4-bit weight says.
struct State {
  std::vector<int64_t> shape;
  int64_t block = 0, nested_block = 0;
  float nested_offset = 0;
};

struct FourBitParts {
  const StoredTensor *codes, *absmax, *map, *nested_absmax, *nested_map;
  State state;
};

State ReadState(const StoredTensor& stored, const std::string& where) {
  const std::string_view text(reinterpret_cast<const char*>(stored.bytes.data()), stored.bytes.size());
  const Json json = ParseStrictJson(text, where + ": " + stored.name, {.bytes = 1 << 16, .depth = 4});
  State state;
  const auto size = [&](const char* key) {
    const Json value = json.is_object() ? json.value(key, Json()) : Json();
    if (!value.is_number_integer() || value < 1 || value > (1 << 30)) {
      ThrowFile("{}: '{}' has no size '{}'", where, stored.name, key);
    }
    return value.get<int64_t>();
  };
  state.block = size("blocksize");
  for (const Json& dim : json.value("shape", Json::array())) {
    if (!dim.is_number_integer() || dim < 1 || dim > (1 << 30))
      ThrowFile("{}: '{}' has a strange shape", where, stored.name);
    state.shape.push_back(dim.get<int64_t>());
  }
  if (state.shape.size() != 2) ThrowFile("{}: '{}' has a shape that is no matrix", where, stored.name);
  if (json.contains("nested_blocksize")) {
    state.nested_block = size("nested_blocksize");
    const Json offset = json.value("nested_offset", Json());
    if (!offset.is_number()) ThrowFile("{}: '{}' has no nested_offset", where, stored.name);
    state.nested_offset = offset.get<float>();
  }
  return state;
}

std::vector<float> BlockScales(const FourBitParts& parts) {
  if (parts.state.nested_block == 0) return parts.absmax->CopyAs<float>();
  const ScopedSubnormals as_stored;
  const std::vector<float> map = parts.nested_map->CopyAs<float>(), largest = parts.nested_absmax->CopyAs<float>();
  std::vector<float> scales;
  for (const std::byte code : parts.absmax->bytes) {
    const size_t block = scales.size() / static_cast<size_t>(parts.state.nested_block);
    if (block >= largest.size()) ThrowFile("'{}': too few scales of scales", parts.nested_absmax->name);
    scales.push_back(map[static_cast<size_t>(code)] * largest[block] + parts.state.nested_offset);
  }
  return scales;
}

Lattice FourBitLattice(const FourBitParts& parts) {
  const int64_t rows = parts.state.shape[0], columns = parts.state.shape[1], block = parts.state.block;
  const int64_t count = rows * columns;
  if (count != static_cast<int64_t>(parts.codes->bytes.size()) * 2) {
    ThrowFile("'{}': {} bytes for a weight of {} × {}", parts.codes->name, parts.codes->bytes.size(), rows, columns);
  }
  const bool in_rows = columns % block == 0;
  if (!in_rows && count % block != 0) ThrowFile("'{}': {} is not whole blocks of {}", parts.codes->name, count, block);
  Lattice lattice;
  lattice.format = Format::kNF4;
  lattice.codes = Tensor::Empty(in_rows ? Shape{rows, columns} : Shape{count / block, block}, DType::kU8);
  uint8_t* out = lattice.codes.MutableData<uint8_t>();
  for (const std::byte pair : parts.codes->bytes) {  // the first element is in the high half
    *out++ = static_cast<uint8_t>(pair) >> 4;
    *out++ = static_cast<uint8_t>(pair) & 15;
  }
  const std::vector<float> scales = BlockScales(parts);
  if (static_cast<int64_t>(scales.size()) != count / block) {
    ThrowFile("'{}': {} scales for {} blocks", parts.absmax->name, scales.size(), count / block);
  }
  lattice.scale =
      Tensor::FromValues(in_rows ? Shape{rows, columns / block} : Shape{count / block, 1}, DType::kF32, scales);
  lattice.tile_columns = block;
  lattice.shape = parts.state.shape;
  const std::vector<float> map = parts.map->CopyAs<float>();
  const std::span<const float> ours = DecodeTable(Format::kNF4);
  if (!std::equal(map.begin(), map.end(), ours.begin(), ours.end())) {
    lattice.table = map;
    lattice.table_note = "its table of 16 values is not nf4";
  }
  return lattice;
}

void ClaimFourBits(Claims& claims, const std::string& state_name) {
  const std::string weight = state_name.substr(0, state_name.find(".quant_state."));
  FourBitParts parts{};
  parts.state = ReadState(*claims.Take(state_name, {DType::kU8}, 1), claims.where());
  parts.codes = claims.Take(weight, {DType::kU8}, -1);
  parts.map = claims.Take(weight + ".quant_map", {DType::kF32}, 1);
  if (parts.map->count != 16)
    ThrowFile("{}: '{}' has {} values, expected 16", claims.where(), parts.map->name, parts.map->count);
  if (parts.state.nested_block != 0) {
    parts.absmax = claims.Take(weight + ".absmax", {DType::kU8}, 1);
    parts.nested_absmax = claims.Take(weight + ".nested_absmax", {DType::kF32}, 1);
    parts.nested_map = claims.Take(weight + ".nested_quant_map", {DType::kF32}, 1);
    if (parts.nested_map->count != 256) {
      ThrowFile("{}: '{}' has {} values, expected 256", claims.where(), parts.nested_map->name,
                parts.nested_map->count);
    }
  } else {
    parts.absmax = claims.Take(weight + ".absmax", {DType::kF32}, 1);
  }
  claims.Add(weight, Shape(parts.state.shape), [parts] { return FourBitLattice(parts); });
}

}  // namespace

void ClaimBitsandbytes(Claims& claims, const Json&) {
  for (const char* suffix : {".quant_state.bitsandbytes__nf4", ".quant_state.bitsandbytes__fp4"}) {
    for (const std::string& name : claims.NamesEndingWith(suffix)) ClaimFourBits(claims, name);
  }
  for (const std::string& name : claims.NamesEndingWith(".SCB")) {
    const std::string module = name.substr(0, name.size() - 4);
    const StoredTensor* maxima = claims.Take(name, {DType::kF32}, 1);
    const StoredTensor* codes = claims.Take(module + ".weight", {DType::kI8}, 2);
    const StoredTensor* format = claims.TakeIfThere(module + ".weight_format", {DType::kU8}, -1);
    if (format != nullptr && (format->bytes.size() != 1 || format->bytes[0] != std::byte{0})) {
      ThrowFile("{}: '{}': only rows in their own order are read", claims.where(), format->name);
    }
    claims.Add(module + ".weight", Shape(codes->shape), [=] { return Int8Lattice(*codes, *maxima); });
  }
}

}  // namespace octavo::weights
