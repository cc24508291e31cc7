#include "octavo/tensor/tensor.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "octavo/base/error.h"

namespace octavo {
namespace {

void SetRowMajor(const Shape& shape, std::array<int64_t, Shape::kMaxRank>& strides) {
  int64_t step = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    strides[static_cast<size_t>(axis)] = step;
    step *= std::max<int64_t>(shape[axis], 1);
  }
}

int64_t CheckedBytes(const Shape& shape, DType dtype) {
  int64_t bytes;
  if (__builtin_mul_overflow(shape.size(), SizeOf(dtype), &bytes)) {
    ThrowUsage("Tensor {}{}: the number of bytes overflows 64 bits", NameOf(dtype), shape);
  }
  return bytes;
}

// Copies a strided tensor to row-major memory, `Bytes` bytes per element.
template <size_t Bytes>
void CopyStrided(const std::byte* from, const Shape& shape, std::span<const int64_t> strides, std::byte* to) {
  if (shape.size() == 0) return;
  int last = shape.rank() - 1;
  int64_t run = shape[last], step = strides[static_cast<size_t>(last)];
  std::array<int64_t, Shape::kMaxRank> index{};
  int64_t offset = 0;
  while (true) {
    const std::byte* source = from + offset * static_cast<int64_t>(Bytes);
    if (step == 1) {
      std::memcpy(to, source, static_cast<size_t>(run) * Bytes);
    } else {
      for (int64_t i = 0; i < run; ++i) {
        std::memcpy(to + i * static_cast<int64_t>(Bytes), source + i * step * static_cast<int64_t>(Bytes), Bytes);
      }
    }
    to += run * static_cast<int64_t>(Bytes);
    int axis = last - 1;
    for (; axis >= 0; --axis) {
      size_t a = static_cast<size_t>(axis);
      offset += strides[a];
      if (++index[a] < shape[axis]) break;
      offset -= strides[a] * shape[axis];
      index[a] = 0;
    }
    if (axis < 0) return;
  }
}

}  // namespace

Tensor Tensor::Meta(const Shape& shape, DType dtype) {
  Tensor result;
  CheckedBytes(shape, dtype);
  result.shape_ = shape;
  SetRowMajor(shape, result.strides_);
  result.dtype_ = dtype;
  result.defined_ = true;
  return result;
}

Tensor Tensor::Empty(const Shape& shape, DType dtype) {
  Tensor result = Meta(shape, dtype);
  result.storage_ = Storage::Allocate(CheckedBytes(shape, dtype));
  return result;
}

Tensor Tensor::Zeros(const Shape& shape, DType dtype) {
  Tensor result = Empty(shape, dtype);
  std::memset(result.storage_->data(), 0, static_cast<size_t>(result.bytes()));
  return result;
}

Tensor Tensor::ExternalWritable(void* data, int64_t bytes, const Shape& shape, DType dtype,
                                std::shared_ptr<const void> owner) {
  Tensor result = External(data, bytes, shape, dtype, owner);
  result.storage_ = Storage::Adopt(data, result.bytes(), std::move(owner), /*writable=*/true);
  return result;
}

Tensor Tensor::External(const void* data, int64_t bytes, const Shape& shape, DType dtype,
                        std::shared_ptr<const void> owner) {
  Tensor result = Meta(shape, dtype);
  if (result.bytes() > bytes) {
    ThrowUsage("Tensor::External: {} takes {} bytes, {} are there", result.ToString(), result.bytes(), bytes);
  }
  if (data == nullptr && result.bytes() > 0) ThrowUsage("Tensor::External: null data for {}", result.ToString());
  if (reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(SizeOf(dtype)) != 0) {
    ThrowUsage("Tensor::External: data of {} is not aligned to {} bytes; copy it instead", result.ToString(),
               SizeOf(dtype));
  }
  // Never written: Storage keeps one pointer type, `writable` guards it.
  result.storage_ = Storage::Adopt(const_cast<void*>(data), result.bytes(), std::move(owner), /*writable=*/false);
  return result;
}

bool Tensor::is_contiguous() const {
  if (size() == 0) return true;
  int64_t step = 1;
  for (int axis = rank() - 1; axis >= 0; --axis) {
    if (shape_[axis] != 1 && strides_[static_cast<size_t>(axis)] != step) return false;
    step *= shape_[axis];
  }
  return true;
}

bool Tensor::writable() const {
  if (storage_ == nullptr || !storage_->writable()) return false;
  for (int axis = 0; axis < rank(); ++axis) {
    if (shape_[axis] > 1 && strides_[static_cast<size_t>(axis)] == 0) return false;
  }
  return true;
}

int64_t Tensor::stride(int axis) const {
  return strides_[static_cast<size_t>(CheckAxis("Tensor::stride", axis, shape_))];
}

int64_t Tensor::bytes() const { return size() * SizeOf(dtype_); }

std::string Tensor::ToString() const { return defined_ ? fmt::format("{}{}", NameOf(dtype_), shape_) : "undefined"; }

std::byte* Tensor::bytes_at_zero() const { return storage_->data() + offset_ * SizeOf(dtype_); }

void Tensor::CheckDefined(const char* what) const {
  if (!defined_) ThrowUsage("Tensor::{}: the tensor is undefined", what);
}

void Tensor::CheckAccess(bool stores, const char* what) const {
  CheckDefined(what);
  if (storage_ == nullptr) ThrowUsage("Tensor::{}: {} is a meta tensor and has no data", what, ToString());
  if (!stores) ThrowUsage("Tensor::{}: {} read as another type", what, ToString());
}

void Tensor::CheckWritable() const {
  if (writable()) return;
  ThrowUsage("Tensor::MutableData: {} is {}; clone it first", ToString(),
             storage_->writable() ? "a broadcast view" : "read-only memory");
}

void Tensor::CheckContiguous(const char* what) const {
  CheckDefined(what);
  if (!is_contiguous()) ThrowUsage("Tensor::{}: {} is a strided view; take Contiguous() first", what, ToString());
}

void Tensor::CheckCount(int64_t found) const {
  if (found != size()) ThrowUsage("Tensor::FromValues: {} takes {} values, {} given", ToString(), size(), found);
}

int64_t Tensor::ElementOffset(std::span<const int64_t> index) const {
  CheckDefined("At");
  bool good = index.size() == static_cast<size_t>(rank());
  int64_t offset = 0;
  for (size_t axis = 0; good && axis < index.size(); ++axis) {
    good = index[axis] >= 0 && index[axis] < shape_[static_cast<int>(axis)];
    offset += index[axis] * strides_[axis];
  }
  if (!good) ThrowUsage("Tensor::At: index {} of {}", Shape(index), ToString());
  return offset;
}

const std::byte* Tensor::RawData() const {
  CheckAccess(true, "RawData");
  CheckContiguous("RawData");
  return bytes_at_zero();
}

std::byte* Tensor::MutableRawData() {
  CheckAccess(true, "MutableRawData");
  CheckContiguous("MutableRawData");
  CheckWritable();
  return bytes_at_zero();
}

Tensor Tensor::Clone() const {
  CheckDefined("Clone");
  if (is_meta()) return Meta(shape_, dtype_);
  Tensor result = Empty(shape_, dtype_);
  const std::byte* from = bytes_at_zero();
  std::byte* to = result.bytes_at_zero();
  if (is_contiguous()) {
    std::memcpy(to, from, static_cast<size_t>(bytes()));
    return result;
  }
  std::span<const int64_t> strides(strides_.data(), static_cast<size_t>(rank()));
  switch (SizeOf(dtype_)) {
    case 1:
      CopyStrided<1>(from, shape_, strides, to);
      break;
    case 2:
      CopyStrided<2>(from, shape_, strides, to);
      break;
    case 4:
      CopyStrided<4>(from, shape_, strides, to);
      break;
    default:
      CopyStrided<8>(from, shape_, strides, to);
      break;
  }
  return result;
}

Tensor Tensor::Contiguous() const {
  CheckDefined("Contiguous");
  return is_contiguous() ? *this : Clone();
}

bool BitEqual(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) return false;
  Tensor x = a.Contiguous(), y = b.Contiguous();
  return std::memcmp(x.RawData(), y.RawData(), static_cast<size_t>(x.bytes())) == 0;
}

}  // namespace octavo
