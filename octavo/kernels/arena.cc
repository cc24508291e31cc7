#include "octavo/kernels/arena.h"

#include <algorithm>
#include <new>

namespace octavo::kernels {

Arena::~Arena() { ::operator delete(data_, std::align_val_t(kArenaAlignment)); }

std::byte* Arena::Reserve(size_t bytes) {
  if (bytes > capacity_) {
    ::operator delete(data_, std::align_val_t(kArenaAlignment));
    data_ = nullptr;
    capacity_ = 0;
    data_ = static_cast<std::byte*>(::operator new(bytes, std::align_val_t(kArenaAlignment)));
    capacity_ = bytes;
  }
  return data_;
}

}  // namespace octavo::kernels
