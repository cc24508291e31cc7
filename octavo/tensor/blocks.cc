#include "octavo/tensor/blocks.h"

#include <bit>
#include <new>

namespace octavo {
namespace {

constexpr std::align_val_t kAligned{64};

// Class c holds blocks of (4 + c % 4) * 32 * 2^(c / 4) bytes: 128, 160, 192, 224, 256, 320, …
struct Class {
  int number;
  int64_t bytes;
};
Class ClassOf(int64_t bytes) {
  if (bytes <= 128) return {0, 128};
  const int doubling = std::bit_width(static_cast<uint64_t>(bytes - 1)) - 8;  // (128, 256]: 0
  const int64_t step = int64_t{32} << doubling;
  const int64_t steps = (bytes + step - 1) / step;  // 5 … 8
  return {4 * doubling + static_cast<int>(steps) - 4, steps * step};
}

std::byte* FromHeap(int64_t bytes) {
  return static_cast<std::byte*>(::operator new(static_cast<size_t>(bytes), kAligned, std::nothrow));
}

}  // namespace

TensorBlocks::~TensorBlocks() {
  for (Free* at : free_) {
    while (at != nullptr) {
      Free* const next = at->next;
      ::operator delete(at, kAligned);
      at = next;
    }
  }
}

std::byte* TensorBlocks::Take(int64_t bytes) {
  if (bytes > kLargest) return FromHeap(bytes);
  const Class size = ClassOf(bytes);
  {
    const std::lock_guard lock(mutex_);
    Free*& first = free_[static_cast<size_t>(size.number)];
    if (first != nullptr) {
      Free* const block = first;
      first = block->next;
      held_ -= size.bytes;
      return reinterpret_cast<std::byte*>(block);
    }
  }
  return FromHeap(size.bytes);
}

void TensorBlocks::Give(std::byte* block, int64_t bytes) {
  if (bytes <= kLargest) {
    const Class size = ClassOf(bytes);
    const std::lock_guard lock(mutex_);
    if (held_ + size.bytes <= kHeld) {
      Free*& first = free_[static_cast<size_t>(size.number)];
      first = new (block) Free{first};
      held_ += size.bytes;
      return;
    }
  }
  ::operator delete(block, kAligned);
}

int64_t TensorBlocks::held() const {
  const std::lock_guard lock(mutex_);
  return held_;
}

}  // namespace octavo
