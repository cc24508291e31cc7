// Cuts one block of memory into aligned pieces; first used with data = nullptr to learn the size. Inside the integer
// families, whose packed operands travel with constants of their rows and columns.
#pragma once

#include <cstddef>
#include <cstdint>

namespace octavo::kernels {

class Carver {
 public:
  explicit Carver(std::byte* data) : data_(data) {}

  template <typename T>
  T* Take(int64_t count) {
    std::byte* piece = data_ == nullptr ? nullptr : data_ + used_;
    used_ += (count * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
    return reinterpret_cast<T*>(piece);
  }
  int64_t used() const { return used_; }

 private:
  std::byte* data_;
  int64_t used_ = 0;
};

}  // namespace octavo::kernels
