#include "octavo/kernels/arena.h"

#include <new>

namespace octavo::kernels {

Arena::~Arena() {
  for (const Block& block : blocks_) ::operator delete(block.data, std::align_val_t(kArenaAlignment));
}

std::byte* Arena::Reserve(Slot slot, size_t bytes) {
  Block& block = blocks_[slot];
  if (bytes > block.capacity) {
    ::operator delete(block.data, std::align_val_t(kArenaAlignment));
    block = {};
    block.data = static_cast<std::byte*>(::operator new(bytes, std::align_val_t(kArenaAlignment)));
    block.capacity = bytes;
  }
  return block.data;
}

}  // namespace octavo::kernels
