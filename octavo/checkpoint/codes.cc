#include "octavo/checkpoint/codes.h"

#include "octavo/base/checked.h"
#include "octavo/base/error.h"
#include "octavo/checkpoint/safetensors.h"
#include "octavo/numerics/pack.h"

namespace octavo {
namespace {

std::vector<int64_t> DimsOf(const Tensor& tensor) { return {tensor.shape().begin(), tensor.shape().end()}; }

EncodedTensor Plain(std::string name, const Tensor& tensor, std::string_view type) {
  const Tensor packed = tensor.Contiguous();
  return {{std::move(name), std::string(type), DimsOf(packed)}, packed};
}

// Small floats have a type of their own only where every reader of the format knows it.
std::string_view TypeOfCodes(const QArray& array) {
  const Format stored = Info(array.format).storage;
  if (stored == Format::kF8E4M3FN || stored == Format::kF8E5M2) return SafetensorsType(DType::kU8, stored);
  return SafetensorsType(array.qvalue.dtype());
}

std::span<const uint8_t> BytesOf(const Tensor& tensor) {
  return {reinterpret_cast<const uint8_t*>(tensor.RawData()), static_cast<size_t>(tensor.bytes())};
}

std::span<uint8_t> MutableBytesOf(Tensor& tensor) {
  return {reinterpret_cast<uint8_t*>(tensor.MutableRawData()), static_cast<size_t>(tensor.bytes())};
}

// A stream of bits through the whole tensor. Where rows fill whole bytes, its shape shows them.
EncodedTensor Packed(std::string name, const QArray& array, int bits) {
  const Tensor codes = array.qvalue.Contiguous();
  std::vector<int64_t> dims = DimsOf(codes);
  const int64_t bytes = PackedBytes(codes.size(), bits);
  if (!dims.empty() && dims.back() * bits % 8 == 0) {
    dims.back() = dims.back() * bits / 8;
  } else {
    dims = {bytes};
  }
  Tensor packed = Tensor::Empty(Shape(dims), DType::kU8);
  PackCodes(BytesOf(codes), bits, MutableBytesOf(packed));
  return {{std::move(name), "U8", dims}, packed};
}

}  // namespace

std::vector<EncodedTensor> EncodeCodes(const std::string& name, const QArray& array) {
  const int bits = Info(array.format).bits;
  std::vector<EncodedTensor> tensors;
  tensors.push_back(bits < 8 ? Packed(name + kCodesSuffix, array, bits)
                             : Plain(name + kCodesSuffix, array.qvalue, TypeOfCodes(array)));
  tensors.push_back(Plain(name + kScaleSuffix, array.scale, SafetensorsType(array.scale.dtype())));
  if (array.zero_point) {
    tensors.push_back(Plain(name + kZeroSuffix, *array.zero_point, SafetensorsType(array.zero_point->dtype())));
  }
  return tensors;
}

ManifestQuantized DescribeCodes(const QArray& array) {
  ManifestQuantized described;
  described.format = Info(array.format).name;
  described.shape = {array.shape().begin(), array.shape().end()};
  described.tile = TileShape(array);
  return described;
}

QArray DecodeCodes(const std::string& where, const std::string& name, const ManifestQuantized& described,
                   const Tensor& codes, const Tensor& scale, const std::optional<Tensor>& zero) {
  const std::optional<Format> format = FindFormat(described.format);
  if (!format) ThrowFile("{}: '{}' is of the unknown format '{}'", where, name, described.format);
  const FormatInfo& info = Info(*format);
  const std::optional<int64_t> count = CheckedProduct(described.shape);
  const int64_t wanted = !count ? -1 : info.bits < 8 ? PackedBytes(*count, info.bits) : *count * SizeOf(info.dtype);
  if (codes.bytes() != wanted || (info.bits >= 8 && codes.dtype() != info.dtype)) {
    ThrowFile("{}: '{}' has {} bytes of {} codes, expected {} bytes for [{}]", where, name, codes.bytes(),
              described.format, wanted, fmt::join(described.shape, ", "));
  }
  QArray array;
  array.format = *format;
  array.scale = scale;
  array.zero_point = zero;
  if (info.bits < 8) {
    array.qvalue = Tensor::Empty(Shape(described.shape), info.dtype);
    UnpackCodes(BytesOf(codes), info.bits, info.dtype == DType::kI8, MutableBytesOf(array.qvalue));
  } else {
    array.qvalue = codes.Reshape(Shape(described.shape));
  }
  try {
    Validate(name, array);
  } catch (const Error& error) {
    ThrowFile("{}: {}", where, error.message());
  }
  if (TileShape(array) != described.tile) {
    ThrowFile("{}: '{}' has tiles of [{}], manifest.json says [{}]", where, name, fmt::join(TileShape(array), ", "),
              fmt::join(described.tile, ", "));
  }
  return array;
}

}  // namespace octavo
