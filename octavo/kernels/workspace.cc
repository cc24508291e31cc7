#include "octavo/kernels/workspace.h"

#include <sys/mman.h>

#include <cstdlib>
#include <new>
#include <utility>

namespace octavo::kernels {
namespace {

constexpr size_t kLine = 64, kPage = 4096;
constexpr size_t kHuge = size_t{2} << 20;
constexpr size_t kHugeFrom = size_t{1} << 20;

}  // namespace

Buffer::Buffer(size_t bytes) {
  if (bytes == 0) return;
  const size_t alignment = bytes >= kHugeFrom ? kHuge : kLine;
  // To whole pages, not whole huge ones: the panels of a weight of 3 MiB would take 4.
  const size_t grain = alignment == kHuge ? kPage : kLine, rounded = (bytes + grain - 1) / grain * grain;
  if (posix_memalign(&data_, alignment, rounded) != 0) throw std::bad_alloc();
  bytes_ = rounded;
#ifdef MADV_HUGEPAGE
  // A refusal costs speed, not correctness.
  if (alignment == kHuge) (void)madvise(data_, rounded, MADV_HUGEPAGE);
#endif
}

Buffer::~Buffer() { std::free(data_); }

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

void* Workspace::Get(int slot, size_t bytes) {
  const size_t index = static_cast<size_t>(slot);
  if (index >= slots_.size()) slots_.resize(index + 1);
  if (slots_[index].bytes() < bytes) {
    slots_[index] = Buffer();  // free first: the two need not exist at once
    slots_[index] = Buffer(bytes);
  }
  return slots_[index].data();
}

size_t Workspace::bytes() const {
  size_t total = 0;
  for (const Buffer& slot : slots_) total += slot.bytes();
  return total;
}

}  // namespace octavo::kernels
