// fp8 weights with a scale per block (DeepSeek-V3) or per tensor, and experts in mxfp4 (gpt-oss).
#include <nlohmann/json.hpp>

#include "octavo/base/error.h"
#include "octavo/weights/prequantized.h"

namespace octavo::weights {
namespace {

using Json = nlohmann::json;

constexpr std::initializer_list<DType> kFloats = {DType::kF32, DType::kBF16, DType::kF16};

struct Block {
  int64_t rows = 0, columns = 0;  // 0: one scale for the tensor
};

Block BlockOf(const Json& config, const std::string& where) {
  const Json size = config.value("weight_block_size", Json());
  if (size.is_null()) return {};
  const bool good = size.is_array() && size.size() == 2 && size[0].is_number_integer() && size[1].is_number_integer() &&
                    size[0] > 0 && size[1] > 0 && size[0] < (1 << 30) && size[1] < (1 << 30);
  if (!good) ThrowFile("{}: weight_block_size is not two sizes", where);
  return {size[0].get<int64_t>(), size[1].get<int64_t>()};
}

Lattice Fp8Lattice(const StoredTensor& codes, const StoredTensor& scale, const Block& block) {
  Lattice lattice;
  lattice.format = *codes.format;
  lattice.codes = CopyStored(codes);
  lattice.scale = CopyStored(scale);
  if (lattice.scale.rank() != 2) lattice.scale = lattice.scale.Reshape(Shape{lattice.scale.size(), 1});
  lattice.tile_rows = block.rows != 0 ? block.rows : codes.shape[0];
  lattice.tile_columns = block.columns != 0 ? block.columns : codes.shape[1];
  lattice.shape = codes.shape;
  return lattice;
}

// Two codes to a byte, the even one in the low half.
Tensor Nibbles(const StoredTensor& blocks, int64_t rows, int64_t columns) {
  Tensor codes = Tensor::Empty(Shape{rows, columns}, DType::kU8);
  uint8_t* out = codes.MutableData<uint8_t>();
  for (const std::byte pair : blocks.bytes) {
    *out++ = static_cast<uint8_t>(pair) & 15;
    *out++ = static_cast<uint8_t>(pair) >> 4;
  }
  return codes;
}

// blocks [experts, out, groups, 16], scales [experts, out, groups] as exponents with bias 127 -> [experts, in, out].
Lattice Mxfp4Lattice(const StoredTensor& blocks, const StoredTensor& scales) {
  const int64_t experts = blocks.shape[0], out = blocks.shape[1], groups = blocks.shape[2];
  Lattice lattice;
  lattice.format = Format::kF4E2M1FN;
  lattice.codes = Nibbles(blocks, experts * out, groups * 32);
  std::vector<float> powers;
  for (const std::byte code : scales.bytes) {
    powers.push_back(Decode(Format::kF8E8M0FNU, static_cast<uint32_t>(code)));
  }
  lattice.scale = Tensor::FromValues(Shape{experts * out, groups}, DType::kF32, powers);
  lattice.tile_columns = 32;
  lattice.shape = {experts, out, groups * 32};
  lattice.swap_last = true;
  return lattice;
}

}  // namespace

void ClaimBlockFp8(Claims& claims, const Json& config) {
  const Block block = BlockOf(config, claims.where());
  for (const std::string suffix : {".weight_scale_inv", ".weight_scale"}) {
    for (const std::string& name : claims.NamesEndingWith(suffix)) {
      const std::string module = name.substr(0, name.size() - suffix.size());
      const StoredTensor* scale = claims.Take(name, kFloats, -1);
      const StoredTensor* codes = claims.Take(module + ".weight", {DType::kU8}, 2);
      if (!codes->format) ThrowFile("{}: '{}' is not of an fp8 type", claims.where(), codes->name);
      if (claims.TakeIfThere(module + ".input_scale", kFloats, -1) != nullptr) {
        claims.Note(fmt::format("{}: the static scale of its activations is not used", module));
      }
      claims.Add(module + ".weight", Shape(codes->shape), [=] { return Fp8Lattice(*codes, *scale, block); });
    }
  }
}

void ClaimMxfp4(Claims& claims, const Json&) {
  for (const std::string& name : claims.NamesEndingWith("_blocks")) {
    const std::string weight = name.substr(0, name.size() - 7);
    const StoredTensor* blocks = claims.Take(name, {DType::kU8}, 4);
    const StoredTensor* scales = claims.Take(weight + "_scales", {DType::kU8}, 3);
    const std::vector<int64_t>& shape = blocks->shape;
    if (shape[3] != 16 || !std::equal(scales->shape.begin(), scales->shape.end(), shape.begin())) {
      ThrowFile("{}: '{}' [{}] does not fit its scales [{}]; expected 16 bytes for each", claims.where(), name,
                fmt::join(shape, ", "), fmt::join(scales->shape, ", "));
    }
    claims.Add(weight, Shape{shape[0], shape[2] * 32, shape[1]}, [=] { return Mxfp4Lattice(*blocks, *scales); });
  }
}

}  // namespace octavo::weights
