// A dense array: shape, dtype, strides over shared storage. Used by everyone above; never computes (arithmetic lives in
// kernels/, ops/ and quant/), never packs. A Tensor is a value: copying it copies a handle, views share the storage.
// Who makes a tensor fills it through MutableData before handing it on; afterwards its values are treated as constant.
// A *meta* tensor has shape and dtype but no storage: dry runs use it, and asking for its data is an error.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "octavo/numerics/dtype.h"
#include "octavo/tensor/index.h"
#include "octavo/tensor/shape.h"
#include "octavo/tensor/storage.h"

namespace octavo {

// Which C++ types read and write a dtype. 16-bit floats are read as their bits, bool as one byte.
template <typename T>
constexpr bool Stores(DType dtype);

class Tensor {
 public:
  Tensor() = default;  // no tensor at all: defined() is false and everything else is an error

  static Tensor Empty(const Shape& shape, DType dtype);  // uninitialized
  static Tensor Zeros(const Shape& shape, DType dtype);
  static Tensor Meta(const Shape& shape, DType dtype);
  // Views memory that `owner` keeps valid, row-major. Read-only unless told otherwise. `bytes` is what is there:
  // too few for the shape, or a pointer that is not aligned for the dtype, is an error.
  static Tensor External(const void* data, int64_t bytes, const Shape& shape, DType dtype,
                         std::shared_ptr<const void> owner);
  static Tensor ExternalWritable(void* data, int64_t bytes, const Shape& shape, DType dtype,
                                 std::shared_ptr<const void> owner);
  // A copy of `values`, row-major; their count must be that of the shape.
  template <typename T>
  static Tensor FromValues(const Shape& shape, DType dtype, std::span<const T> values);
  template <typename T>
  static Tensor FromValues(const Shape& shape, DType dtype, const std::vector<T>& values) {
    return FromValues<T>(shape, dtype, std::span<const T>(values));
  }

  bool defined() const { return defined_; }
  bool is_meta() const { return defined_ && storage_ == nullptr; }
  bool is_contiguous() const;  // row-major without gaps
  bool writable() const;       // MutableData would succeed
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int rank() const { return shape_.rank(); }
  int64_t size() const { return shape_.size(); }
  int64_t dim(int axis) const { return shape_.dim(axis); }
  int64_t stride(int axis) const;  // in elements
  int64_t bytes() const;           // size() × bytes of an element
  bool SharesStorageWith(const Tensor& other) const { return storage_ != nullptr && storage_ == other.storage_; }
  std::string ToString() const;  // "f32[2, 3]"

  // The element at index 0; others at the strides. T must store the dtype.
  template <typename T>
  const T* Data() const {
    CheckAccess(Stores<T>(dtype_), "Data");
    return reinterpret_cast<const T*>(bytes_at_zero());
  }
  template <typename T>
  T* MutableData() {
    CheckAccess(Stores<T>(dtype_), "MutableData");
    CheckWritable();
    return reinterpret_cast<T*>(bytes_at_zero());
  }
  // All elements in row-major order; the tensor must be contiguous.
  template <typename T>
  std::span<const T> Values() const {
    CheckContiguous("Values");
    return {Data<T>(), static_cast<size_t>(size())};
  }
  template <typename T>
  std::span<T> MutableValues() {
    CheckContiguous("MutableValues");
    return {MutableData<T>(), static_cast<size_t>(size())};
  }
  template <typename T>
  T At(std::initializer_list<int64_t> index) const {
    return Data<T>()[ElementOffset(index)];
  }
  // A copy in row-major order, from any strides.
  template <typename T>
  std::vector<T> ToVector() const {
    Tensor packed = Contiguous();
    auto values = packed.Values<T>();
    return {values.begin(), values.end()};
  }
  // Bytes of a contiguous tensor, whatever its dtype.
  const std::byte* RawData() const;
  std::byte* MutableRawData();

  // Views. They share storage; only Reshape may have to copy, when the strides cannot say it.
  Tensor Reshape(std::span<const int64_t> dims) const;  // one -1 takes the rest
  Tensor Reshape(std::initializer_list<int64_t> dims) const { return Reshape({dims.begin(), dims.size()}); }
  Tensor Reshape(const Shape& shape) const { return Reshape(shape.dims()); }
  Tensor Permute(std::span<const int> axes) const;
  Tensor Permute(std::initializer_list<int> axes) const { return Permute({axes.begin(), axes.size()}); }
  Tensor Transpose() const;  // all axes reversed
  Tensor SwapAxes(int a, int b) const;
  Tensor Slice(int axis, int64_t begin, int64_t end, int64_t step = 1) const;  // must lie inside the axis
  Tensor Select(int axis, int64_t index) const;                                // drops the axis
  Tensor Index(std::span<const IndexItem> items) const;
  Tensor Index(std::initializer_list<IndexItem> items) const { return Index({items.begin(), items.size()}); }
  Tensor ExpandDims(int axis) const;             // a new axis of length 1 before `axis`
  Tensor BroadcastTo(const Shape& shape) const;  // NumPy's rule, stride 0 on repeated axes
  // Permute that may leave out axes of length 1 and insert new ones (nullopt). Leaving out a longer one is an error.
  Tensor Rearrange(std::span<const std::optional<int>> axes) const;

  Tensor Contiguous() const;  // itself when it is contiguous, else a copy
  Tensor Clone() const;       // always a copy; row-major
  // Repeats elements over contiguous positions until the shape is reached (GenericBroadcastShape); a copy unless equal.
  Tensor RepeatTo(const Shape& shape) const;

 private:
  std::byte* bytes_at_zero() const;
  void CheckDefined(const char* what) const;
  void CheckAccess(bool stores, const char* what) const;
  void CheckWritable() const;
  void CheckContiguous(const char* what) const;
  void CheckCount(int64_t found) const;
  int64_t ElementOffset(std::span<const int64_t> index) const;
  int64_t ElementOffset(std::initializer_list<int64_t> index) const {
    return ElementOffset(std::span<const int64_t>(index.begin(), index.size()));
  }
  // The same storage seen through other dims and strides, `offset` elements further on.
  Tensor View(std::span<const int64_t> dims, std::span<const int64_t> strides, int64_t offset) const;
  bool StridesFor(const Shape& to, std::array<int64_t, Shape::kMaxRank>& strides) const;

  std::shared_ptr<Storage> storage_;
  int64_t offset_ = 0;  // in elements
  DType dtype_ = DType::kF32;
  bool defined_ = false;
  Shape shape_;
  std::array<int64_t, Shape::kMaxRank> strides_{};  // in elements
};

// Same dtype, shape and bit patterns, whatever the strides.
bool BitEqual(const Tensor& a, const Tensor& b);

template <typename T>
constexpr bool Stores(DType dtype) {
  if constexpr (std::is_same_v<T, float>) return dtype == DType::kF32;
  if constexpr (std::is_same_v<T, double>) return dtype == DType::kF64;
  if constexpr (std::is_same_v<T, int8_t>) return dtype == DType::kI8;
  if constexpr (std::is_same_v<T, uint8_t>) return dtype == DType::kU8 || dtype == DType::kBool;
  if constexpr (std::is_same_v<T, int16_t>) return dtype == DType::kI16;
  if constexpr (std::is_same_v<T, uint16_t>)
    return dtype == DType::kU16 || dtype == DType::kBF16 || dtype == DType::kF16;
  if constexpr (std::is_same_v<T, int32_t>) return dtype == DType::kI32;
  if constexpr (std::is_same_v<T, uint32_t>) return dtype == DType::kU32;
  if constexpr (std::is_same_v<T, int64_t>) return dtype == DType::kI64;
  if constexpr (std::is_same_v<T, uint64_t>) return dtype == DType::kU64;
  return false;
}

template <typename T>
Tensor Tensor::FromValues(const Shape& shape, DType dtype, std::span<const T> values) {
  Tensor result = Empty(shape, dtype);
  result.CheckAccess(Stores<T>(dtype), "FromValues");
  result.CheckCount(static_cast<int64_t>(values.size()));
  std::copy(values.begin(), values.end(), result.MutableData<T>());
  return result;
}

}  // namespace octavo
