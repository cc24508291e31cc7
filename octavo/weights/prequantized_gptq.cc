// GPTQ and AWQ: codes [in, out] packed into 32-bit words, scales [groups, out], zero points packed along the output.
#include <nlohmann/json.hpp>

#include "octavo/base/error.h"
#include "octavo/weights/prequantized.h"

namespace octavo::weights {
namespace {

using Json = nlohmann::json;

// AWQ's place of each of eight neighbouring outputs in its word.
constexpr int kAwqPlace[] = {0, 4, 1, 5, 2, 6, 3, 7};

int64_t IntOf(const Json& config, std::initializer_list<const char*> keys, const std::string& where) {
  for (const char* key : keys) {
    const auto found = config.find(key);
    if (found != config.end() && found->is_number_integer()) return found->get<int64_t>();
  }
  ThrowFile("{}: quantization_config has no whole number '{}'", where, *keys.begin());
}

Tensor ToI32(const Tensor& codes, int32_t plus) {
  std::vector<int32_t> wide;
  for (const uint8_t code : codes.ToVector<uint8_t>()) wide.push_back(code + plus);
  return Tensor::FromValues(codes.shape(), DType::kI32, wide);
}

// What a module's tensors are called and how many rows and columns its weight has.
struct Parts {
  const StoredTensor *words, *zeros, *scales, *groups;
  int64_t in, out;
};

Lattice MakeLattice(const Parts& parts, int bits, int64_t group_size, int packed_axis, const int* order,
                    int32_t zero_plus) {
  Lattice lattice;
  lattice.format = bits == 4 ? Format::kUint4 : bits == 2 ? Format::kUint2 : Format::kUint8;
  lattice.codes = UnpackWords(*parts.words, bits, packed_axis, packed_axis == 0 ? parts.in : parts.out, order);
  lattice.scale = CopyStored(*parts.scales);
  lattice.zero = ToI32(UnpackWords(*parts.zeros, bits, 1, parts.out, order), zero_plus);
  lattice.tile_rows = group_size > 0 ? group_size : parts.in;
  if (parts.groups != nullptr) lattice.group_of = parts.groups->CopyAs<int32_t>();
  lattice.transposed = true;
  lattice.shape = {parts.out, parts.in};
  return lattice;
}

}  // namespace

void ClaimGptq(Claims& claims, const Json& config) {
  const int64_t bits = IntOf(config, {"bits"}, claims.where());
  const int64_t group_size = IntOf(config, {"group_size"}, claims.where());
  if (bits != 2 && bits != 4 && bits != 8)
    ThrowFile("{}: GPTQ with {} bits is not read; known: 2 4 8", claims.where(), bits);
  const std::string format = config.value("checkpoint_format", "gptq");
  if (format != "gptq" && format != "gptq_v2") {
    ThrowFile("{}: GPTQ checkpoint_format '{}' is not read; known: gptq gptq_v2", claims.where(), format);
  }
  // The first form stores the zero point minus one.
  const int32_t zero_plus = format == "gptq" ? 1 : 0;
  for (const std::string& name : claims.NamesEndingWith(".qweight")) {
    const std::string module = name.substr(0, name.size() - 8);
    Parts parts;
    parts.words = claims.Take(name, {DType::kI32, DType::kU32}, 2);
    parts.zeros = claims.Take(module + ".qzeros", {DType::kI32, DType::kU32}, 2);
    parts.scales = claims.Take(module + ".scales", {DType::kF16, DType::kBF16, DType::kF32}, 2);
    parts.groups = claims.TakeIfThere(module + ".g_idx", {DType::kI32}, 1);
    parts.in = parts.words->shape[0] * (32 / bits);
    parts.out = parts.words->shape[1];
    claims.Add(module + ".weight", Shape{parts.out, parts.in},
               [=] { return MakeLattice(parts, static_cast<int>(bits), group_size, 0, nullptr, zero_plus); });
  }
}

void ClaimAwq(Claims& claims, const Json& config) {
  const int64_t bits = IntOf(config, {"bits", "w_bit"}, claims.where());
  const int64_t group_size = IntOf(config, {"group_size", "q_group_size"}, claims.where());
  if (bits != 4) ThrowFile("{}: AWQ with {} bits is not read; known: 4", claims.where(), bits);
  const std::string version = config.value("version", "gemm");
  if (version != "gemm" && version != "GEMM") {
    ThrowFile("{}: AWQ version '{}' is not read; known: gemm", claims.where(), version);
  }
  for (const std::string& name : claims.NamesEndingWith(".qweight")) {
    const std::string module = name.substr(0, name.size() - 8);
    Parts parts;
    parts.words = claims.Take(name, {DType::kI32, DType::kU32}, 2);
    parts.zeros = claims.Take(module + ".qzeros", {DType::kI32, DType::kU32}, 2);
    parts.scales = claims.Take(module + ".scales", {DType::kF16, DType::kBF16, DType::kF32}, 2);
    parts.groups = nullptr;
    parts.in = parts.words->shape[0];
    parts.out = parts.words->shape[1] * 8;
    claims.Add(module + ".weight", Shape{parts.out, parts.in},
               [=] { return MakeLattice(parts, 4, group_size, 1, kAwqPlace, 0); });
  }
}

}  // namespace octavo::weights
