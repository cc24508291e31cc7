// Scratch memory that calls reuse: a few aligned blocks that only grow. The caller owns it and passes it down, one per
// concurrent call; a kernel that gets none allocates for the length of the call. Pages stay mapped between calls, which
// is the reason it exists: fresh pages cost more than packing into them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "octavo/kernels/workspace.h"

namespace octavo::kernels {

class Arena {
 public:
  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // At least `bytes` bytes, aligned to a cache line, valid until the next call with this slot. Contents are not kept.
  // Slots keep apart what one call needs at the same time: right operand, left operand, quantized codes,
  // panels rewritten by the workers.
  enum Slot { kRight, kLeft, kCodes, kDecoded, kSlots };
  std::byte* Reserve(Slot slot, size_t bytes);

 private:
  Buffer blocks_[kSlots];
};

// Cuts one block into aligned pieces; first used with data = nullptr to learn the size.
class Carver {
 public:
  explicit Carver(std::byte* data) : data_(data) {}

  template <typename T>
  T* Take(int64_t count) {
    std::byte* piece = data_ == nullptr ? nullptr : data_ + used_;
    used_ += (static_cast<size_t>(count) * sizeof(T) + 63) / 64 * 64;
    return reinterpret_cast<T*>(piece);
  }
  size_t used() const { return used_; }

 private:
  std::byte* data_;
  size_t used_ = 0;
};

}  // namespace octavo::kernels
