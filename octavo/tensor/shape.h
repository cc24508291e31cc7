// The sizes of a tensor's axes, row-major. A small value, copied freely, used by everyone above numerics/. Every Shape
// that exists is sane: no negative axis, at most kMaxRank axes, and an element count that fits; whoever asks for
// another one gets a usage error. An axis may be 0 long (an empty batch, an expert without tokens). Knows nothing of
// strides or storage.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace octavo {

class Shape {
 public:
  static constexpr int kMaxRank = 16;  // tiled contractions add an axis per tiled axis

  Shape() = default;  // a scalar: rank 0, one element
  Shape(std::initializer_list<int64_t> dims) : Shape(std::span<const int64_t>(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const int64_t> dims);
  explicit Shape(const std::vector<int64_t>& dims) : Shape(std::span<const int64_t>(dims)) {}

  int rank() const { return rank_; }
  int64_t size() const { return size_; }                                           // elements
  int64_t operator[](int axis) const { return dims_[static_cast<size_t>(axis)]; }  // 0 <= axis < rank
  int64_t dim(int axis) const;  // counts from the end when negative; a usage error out of range

  const int64_t* begin() const { return dims_.data(); }
  const int64_t* end() const { return dims_.data() + rank_; }
  std::span<const int64_t> dims() const { return {dims_.data(), static_cast<size_t>(rank_)}; }

  bool operator==(const Shape& other) const;
  std::string ToString() const;  // "[2, 3]", "[]"

 private:
  int rank_ = 0;  // before the sizes: of most shapes only the first few are read
  int64_t size_ = 1;
  std::array<int64_t, kMaxRank> dims_{};
};

// `axis` in [0, rank), counting from the end when negative. `op` begins the error text.
int CheckAxis(std::string_view op, int axis, const Shape& shape);

// Throws unless `axes` names every axis of `shape` once.
void CheckPermutation(std::string_view op, std::span<const int> axes, const Shape& shape);

// NumPy's rule: axes are aligned at the end and are equal or 1.
Shape BroadcastShape(std::string_view op, const Shape& a, const Shape& b);

// The rule of scales: equal rank, and on each axis the longer is a multiple of the shorter, whose elements are repeated
// over contiguous positions.
Shape GenericBroadcastShape(std::string_view op, const Shape& a, const Shape& b);

// `dims` may hold one -1, which takes what is left of `from`. A count that does not match is an error.
Shape ReshapedShape(std::string_view op, const Shape& from, std::span<const int64_t> dims);

}  // namespace octavo

template <>
struct fmt::formatter<octavo::Shape> : fmt::formatter<std::string> {
  template <typename Context>
  auto format(const octavo::Shape& shape, Context& context) const {
    return fmt::formatter<std::string>::format(shape.ToString(), context);
  }
};
