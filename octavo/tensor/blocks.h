// Where handles of tensors and the data of small ones get their memory. A served token makes and drops some four
// hundred small tensors of the same sizes, between products that stream through every cache: what the C++ heap touches
// for a piece of 8 KiB (its bins, the headers of neighbours) is cold each time. Freed blocks are kept by size, and the
// one that was freed last, whose lines are the warmest, is given out first. At most kHeld bytes are kept. Only Storage
// uses it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace octavo {

class TensorBlocks {
 public:
  static constexpr int64_t kLargest = 72 << 10;  // larger ones are the heap's
  static constexpr int64_t kHeld = 4 << 20;

  TensorBlocks() = default;
  TensorBlocks(const TensorBlocks&) = delete;
  TensorBlocks& operator=(const TensorBlocks&) = delete;
  ~TensorBlocks();

  // Aligned to 64 bytes; null when there is no memory. Give the same `bytes` back.
  std::byte* Take(int64_t bytes);
  void Give(std::byte* block, int64_t bytes);

  int64_t held() const;

 private:
  struct Free {
    Free* next;
  };
  static constexpr int kClasses = 40;  // four to each doubling, from 128 bytes on

  mutable std::mutex mutex_;
  std::array<Free*, kClasses> free_{};
  int64_t held_ = 0;
};

}  // namespace octavo
