#include "octavo/kernels/arena.h"

#include <sys/mman.h>

#include <new>

namespace octavo::kernels {
namespace {

// Blocks of this size and more start at a huge page and ask for them: the packed operands are walked in many short
// streams, and each small page costs a walk of two page tables under a hypervisor.
constexpr size_t kHugePage = size_t{2} << 20;

size_t AlignmentOf(size_t bytes) { return bytes >= kHugePage ? kHugePage : kArenaAlignment; }

}  // namespace

void* AllocateAligned(size_t bytes) {
  void* data = ::operator new(bytes, std::align_val_t(AlignmentOf(bytes)));
  // Only whole huge pages, so that no neighbour is advised; refusal costs speed, not correctness.
  if (bytes >= kHugePage) madvise(data, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
  return data;
}

void FreeAligned(void* data, size_t bytes) { ::operator delete(data, std::align_val_t(AlignmentOf(bytes))); }

Arena::~Arena() {
  for (const Block& block : blocks_) FreeAligned(block.data, block.capacity);
}

std::byte* Arena::Reserve(Slot slot, size_t bytes) {
  Block& block = blocks_[slot];
  if (bytes > block.capacity) {
    FreeAligned(block.data, block.capacity);
    block = {};
    block.data = static_cast<std::byte*>(AllocateAligned(bytes));
    block.capacity = bytes;
  }
  return block.data;
}

}  // namespace octavo::kernels
