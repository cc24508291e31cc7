// Where large tensors get their memory. A training step makes and drops gigabytes of tensors of the same sizes; asking
// the kernel each time costs a page fault and a cleared page per 4 KiB (14 % of a step was measured). This arena keeps
// what is freed, joins neighbours, hands out the smallest piece that fits, and lies on huge pages. It never holds more
// than an eighth above the most that was ever in use at once; Release gives the free part back to the kernel. Only
// Storage uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <utility>

namespace octavo {

class TensorArena {
 public:
  static constexpr int64_t kSmallest = 64 << 10;  // below this the C++ heap is better

  TensorArena() = default;
  TensorArena(const TensorArena&) = delete;
  TensorArena& operator=(const TensorArena&) = delete;
  ~TensorArena();

  // Aligned to 64 bytes; null when there is no memory. Give the same `bytes` back.
  std::byte* Allocate(int64_t bytes);
  void Free(std::byte* data, int64_t bytes);

  void Release();        // gives back what is free
  int64_t held() const;  // free, but not given back to the kernel

 private:
  struct Range {
    int64_t bytes, dirty;  // dirty: upper bound of what the kernel has behind it
  };
  using Ranges = std::map<std::byte*, Range>;

  bool AddChunk(int64_t bytes);
  void Insert(std::byte* begin, Range range);
  Ranges::iterator Erase(Ranges::iterator at);
  void Trim(int64_t goal);  // gives back pages of the largest ranges until at most `goal` bytes are dirty

  mutable std::mutex mutex_;
  Ranges free_;                                       // by address
  std::set<std::pair<int64_t, std::byte*>> by_size_;  // the same ranges
  std::map<std::byte*, int64_t> chunks_;
  int64_t used_ = 0, most_used_ = 0, dirty_ = 0;
};

}  // namespace octavo
