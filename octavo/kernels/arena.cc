#include "octavo/kernels/arena.h"

namespace octavo::kernels {

std::byte* Arena::Reserve(Slot slot, size_t bytes) {
  Buffer& block = blocks_[slot];
  if (bytes > block.bytes()) {
    block = Buffer();  // first the old one, so that both never live together
    block = Buffer(bytes);
  }
  return static_cast<std::byte*>(block.data());
}

}  // namespace octavo::kernels
