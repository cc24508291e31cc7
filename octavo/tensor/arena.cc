#include "octavo/tensor/arena.h"

#include <sys/mman.h>

#include <algorithm>

namespace octavo {
namespace {

constexpr int64_t kHuge = 2 << 20;
constexpr int64_t kChunk = 64 << 20;
constexpr int64_t kUnit = 4096;  // pieces are multiples of this

int64_t RoundUp(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

}  // namespace

TensorArena::~TensorArena() {
  for (const auto& [begin, bytes] : chunks_) munmap(begin, static_cast<size_t>(bytes));
}

int64_t TensorArena::held() const {
  const std::lock_guard lock(mutex_);
  return dirty_;
}

// Address space only: pages come when they are touched.
bool TensorArena::AddChunk(int64_t bytes) {
  const int64_t size = std::max(kChunk, RoundUp(bytes, kHuge));
  void* raw = mmap(nullptr, static_cast<size_t>(size + kHuge), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return false;
  auto* begin = reinterpret_cast<std::byte*>(RoundUp(reinterpret_cast<int64_t>(raw), kHuge));
  auto* const mapped = static_cast<std::byte*>(raw);
  if (begin > mapped) munmap(mapped, static_cast<size_t>(begin - mapped));
  std::byte* const end = begin + size;
  if (mapped + size + kHuge > end) munmap(end, static_cast<size_t>(mapped + size + kHuge - end));
  madvise(begin, static_cast<size_t>(size), MADV_HUGEPAGE);
  chunks_.emplace(begin, size);
  Insert(begin, {size, 0});
  return true;
}

TensorArena::Ranges::iterator TensorArena::Erase(Ranges::iterator at) {
  by_size_.erase({at->second.bytes, at->first});
  dirty_ -= at->second.dirty;
  return free_.erase(at);
}

// Joins the range with its free neighbours. Chunks may touch each other; joining across them is harmless.
void TensorArena::Insert(std::byte* begin, Range range) {
  auto next = free_.lower_bound(begin);
  if (next != free_.end() && begin + range.bytes == next->first) {
    range.bytes += next->second.bytes;
    range.dirty += next->second.dirty;
    next = Erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second.bytes == begin) {
      begin = before->first;
      range.bytes += before->second.bytes;
      range.dirty += before->second.dirty;
      Erase(before);
    }
  }
  free_.emplace(begin, range);
  by_size_.emplace(range.bytes, begin);
  dirty_ += range.dirty;
}

std::byte* TensorArena::Allocate(int64_t bytes) {
  const int64_t size = RoundUp(bytes, kUnit);
  const std::lock_guard lock(mutex_);
  auto fit = by_size_.lower_bound({size, nullptr});
  if (fit == by_size_.end()) {
    if (!AddChunk(size)) return nullptr;
    fit = by_size_.lower_bound({size, nullptr});
  }
  const auto at = free_.find(fit->second);
  std::byte* const begin = at->first;
  const Range range = at->second;
  Erase(at);
  if (range.bytes > size) {
    Insert(begin + size, {range.bytes - size, std::max<int64_t>(0, range.dirty - size)});
  }
  used_ += size;
  most_used_ = std::max(most_used_, used_);
  return begin;
}

void TensorArena::Free(std::byte* data, int64_t bytes) {
  const int64_t size = RoundUp(bytes, kUnit);
  const std::lock_guard lock(mutex_);
  used_ -= size;
  Insert(data, {size, size});
  const int64_t allowed = most_used_ + most_used_ / 8 - used_;
  if (dirty_ > allowed) Trim(allowed - most_used_ / 16);
}

void TensorArena::Release() {
  const std::lock_guard lock(mutex_);
  Trim(0);
  most_used_ = used_;
}

void TensorArena::Trim(int64_t goal) {
  for (auto at = by_size_.rbegin(); at != by_size_.rend() && dirty_ > goal; ++at) {
    Range& range = free_.find(at->second)->second;
    if (range.dirty == 0) continue;
    const int64_t address = reinterpret_cast<int64_t>(at->second);
    const int64_t begin = RoundUp(address, kHuge), end = (address + range.bytes) / kHuge * kHuge;
    if (end <= begin) break;  // the others are smaller still
    madvise(reinterpret_cast<void*>(begin), static_cast<size_t>(end - begin), MADV_DONTNEED);
    const int64_t left = std::min(range.dirty, range.bytes - (end - begin));
    dirty_ -= range.dirty - left;
    range.dirty = left;
  }
}

}  // namespace octavo
