// Scratch memory that calls reuse: one aligned block that only grows. The caller owns it and passes it down, one per
// concurrent call; a kernel that gets none allocates for the length of the call. Pages stay mapped between calls, which
// is the reason it exists: fresh pages cost more than packing into them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace octavo::kernels {

inline constexpr size_t kArenaAlignment = 64;

class Arena {
 public:
  Arena() = default;
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // At least `bytes` bytes, aligned to a cache line, valid until the next call. Contents are not kept.
  std::byte* Reserve(size_t bytes);
  size_t capacity() const { return capacity_; }

 private:
  std::byte* data_ = nullptr;
  size_t capacity_ = 0;
};

// Cuts one block into aligned pieces; first used with data = nullptr to learn the size.
class Carver {
 public:
  explicit Carver(std::byte* data) : data_(data) {}

  template <typename T>
  T* Take(int64_t count) {
    std::byte* piece = data_ == nullptr ? nullptr : data_ + used_;
    used_ += (static_cast<size_t>(count) * sizeof(T) + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
    return reinterpret_cast<T*>(piece);
  }
  size_t used() const { return used_; }

 private:
  std::byte* data_;
  size_t used_ = 0;
};

}  // namespace octavo::kernels
