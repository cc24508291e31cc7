// compressed-tensors: weight (int8 or fp8 codes) or weight_packed (int4, int8 in words), weight_scale, perhaps
// weight_zero_point and weight_g_idx. Tiles follow from the shapes, except for blocks, whose edges may be cut.
#include <nlohmann/json.hpp>

#include "octavo/base/error.h"
#include "octavo/weights/prequantized.h"

namespace octavo::weights {
namespace {

using Json = nlohmann::json;

// The block_structure of any group; [0, 0] when there is none.
std::pair<int64_t, int64_t> BlockOf(const Json& config, const std::string& where) {
  const auto groups = config.find("config_groups");
  if (groups == config.end() || !groups->is_object()) ThrowFile("{}: quantization_config has no config_groups", where);
  for (const auto& [name, group] : groups->items()) {
    const Json weights = group.is_object() ? group.value("weights", Json()) : Json();
    const Json block = weights.is_object() ? weights.value("block_structure", Json()) : Json();
    if (block.is_null()) continue;
    const bool good = block.is_array() && block.size() == 2 && block[0].is_number_integer() &&
                      block[1].is_number_integer() && block[0] > 0 && block[1] > 0 && block[0] < (1 << 30) &&
                      block[1] < (1 << 30);
    if (!good) ThrowFile("{}: block_structure is not two sizes", where);
    return {block[0].get<int64_t>(), block[1].get<int64_t>()};
  }
  return {0, 0};
}

void CheckFormat(const Json& config, const std::string& where) {
  const std::string format = config.value("format", "");
  for (const char* known :
       {"pack-quantized", "int-quantized", "float-quantized", "naive-quantized", "mixed-precision"}) {
    if (format == known) return;
  }
  throw Error(ErrorCode::kFile, fmt::format("{}: compressed-tensors format '{}' is not read", where, format),
              "known: pack-quantized int-quantized float-quantized naive-quantized");
}

// Scales as a matrix: one number is [1, 1], one per row [rows, 1].
Tensor ScaleMatrix(const StoredTensor& stored) {
  const Tensor scale = CopyStored(stored);
  if (scale.rank() == 2) return scale;
  return scale.Reshape(Shape{scale.size(), 1});
}

struct Parts {
  const StoredTensor *codes, *scale, *zero, *groups;
  int64_t rows, columns;
  int bits;  // of packed codes; 0: plain
  int64_t block_rows, block_columns;
};

Tensor Signed(const Tensor& raw, int bits) {
  Tensor codes = Tensor::Empty(raw.shape(), DType::kI8);
  auto* out = codes.MutableData<int8_t>();
  for (const uint8_t code : raw.ToVector<uint8_t>()) *out++ = static_cast<int8_t>(code - (1 << (bits - 1)));
  return codes;
}

Tensor ZeroPoints(const Parts& parts, const Shape& scale) {
  std::vector<int32_t> zeros;
  if (parts.bits == 0 || parts.zero->dtype == DType::kI8) {
    for (const int8_t zero : CopyStored(*parts.zero).ToVector<int8_t>()) zeros.push_back(zero);
  } else {
    // Packed along the output, with the same offset as the codes.
    const Tensor raw = UnpackWords(*parts.zero, parts.bits, 0, scale[0]);
    for (const int8_t zero : Signed(raw, parts.bits).ToVector<int8_t>()) zeros.push_back(zero);
  }
  if (static_cast<int64_t>(zeros.size()) != scale.size()) {
    ThrowFile("'{}': {} zero points for scales {}", parts.zero->name, zeros.size(), scale);
  }
  return Tensor::FromValues(scale, DType::kI32, zeros);
}

Lattice MakeLattice(const Parts& parts) {
  Lattice lattice;
  if (parts.bits != 0) {
    lattice.format = parts.bits == 4 ? Format::kInt4 : Format::kInt8;
    lattice.codes = Signed(UnpackWords(*parts.codes, parts.bits, 1, parts.columns), parts.bits);
  } else {
    lattice.format = parts.codes->format.value_or(Format::kInt8);
    lattice.codes = CopyStored(*parts.codes);
  }
  lattice.scale = ScaleMatrix(*parts.scale);
  const int64_t row_tiles = lattice.scale.dim(0), column_tiles = lattice.scale.dim(1);
  if (row_tiles == 0 || column_tiles == 0) ThrowFile("'{}': no scales", parts.scale->name);
  lattice.tile_rows = parts.block_rows != 0 ? parts.block_rows : (parts.rows + row_tiles - 1) / row_tiles;
  lattice.tile_columns =
      parts.block_columns != 0 ? parts.block_columns : (parts.columns + column_tiles - 1) / column_tiles;
  if (parts.zero != nullptr) lattice.zero = ZeroPoints(parts, lattice.scale.shape());
  if (parts.groups != nullptr) {
    lattice.group_of = parts.groups->CopyAs<int32_t>();
    lattice.group_axis = 1;
  }
  lattice.shape = {parts.rows, parts.columns};
  return lattice;
}

// The shape that a packed weight had; the file says it, its words must agree.
void ReadPackedShape(Claims& claims, const std::string& module, Parts* parts) {
  const StoredTensor* shape = claims.Take(module + ".weight_shape", {DType::kI64, DType::kI32}, 1);
  std::vector<int64_t> dims;
  if (shape->dtype == DType::kI64) {
    dims = shape->CopyAs<int64_t>();
  } else {
    for (const int32_t dim : shape->CopyAs<int32_t>()) dims.push_back(dim);
  }
  const int64_t words = parts->codes->shape[1];
  if (dims.size() != 2 || dims[0] != parts->codes->shape[0] || dims[1] < 1 || words < 1) {
    ThrowFile("{}: '{}.weight_shape' is [{}], its codes are {} × {} words", claims.where(), module,
              fmt::join(dims, ", "), parts->codes->shape[0], words);
  }
  parts->rows = dims[0];
  parts->columns = dims[1];
  for (const int bits : {4, 8}) {
    const int64_t per_word = 32 / bits;
    if ((parts->columns + per_word - 1) / per_word == words) parts->bits = bits;
    if (parts->bits != 0) return;
  }
  ThrowFile("{}: '{}': {} words for rows of {}; 4 and 8 bits are read", claims.where(), module, words, parts->columns);
}

}  // namespace

void ClaimCompressedTensors(Claims& claims, const Json& config) {
  CheckFormat(config, claims.where());
  const auto [block_rows, block_columns] = BlockOf(config, claims.where());
  const std::initializer_list<DType> kFloats = {DType::kF16, DType::kBF16, DType::kF32};
  for (const std::string& name : claims.NamesEndingWith(".weight_scale")) {
    const std::string module = name.substr(0, name.size() - 13);
    Parts parts{};
    parts.scale = claims.Take(name, kFloats, -1);
    if (parts.scale->shape.size() > 2) ThrowFile("{}: '{}' has more than two axes", claims.where(), name);
    parts.codes = claims.TakeIfThere(module + ".weight_packed", {DType::kI32}, 2);
    if (parts.codes != nullptr) {
      ReadPackedShape(claims, module, &parts);
    } else {
      parts.codes = claims.Take(module + ".weight", {DType::kI8, DType::kU8}, 2);
      if (parts.codes->dtype == DType::kU8 && !parts.codes->format) {
        ThrowFile("{}: '{}' is neither int8 nor fp8", claims.where(), parts.codes->name);
      }
      parts.rows = parts.codes->shape[0];
      parts.columns = parts.codes->shape[1];
      parts.block_rows = block_rows;
      parts.block_columns = block_columns;
    }
    parts.zero = claims.TakeIfThere(module + ".weight_zero_point", {DType::kI8, DType::kI32}, -1);
    parts.groups = claims.TakeIfThere(module + ".weight_g_idx", {DType::kI32}, 1);
    if (claims.TakeIfThere(module + ".input_scale", kFloats, -1) != nullptr) {
      claims.Note(fmt::format("{}: the static scale of its activations is not used", module));
    }
    claims.Add(module + ".weight", Shape{parts.rows, parts.columns}, [parts] { return MakeLattice(parts); });
  }
}

}  // namespace octavo::weights
