#include "octavo/tensor/storage.h"

#include <new>
#include <utility>

#include "octavo/base/error.h"

namespace octavo {

Storage::Storage(std::byte* data, int64_t bytes, std::shared_ptr<const void> owner, bool writable, bool owned)
    : data_(data), bytes_(bytes), owner_(std::move(owner)), writable_(writable), owned_(owned) {}

Storage::~Storage() {
  if (owned_) ::operator delete (data_, std::align_val_t{kAlignment});
}

std::shared_ptr<Storage> Storage::Allocate(int64_t bytes) {
  if (bytes < 0) ThrowUsage("Tensor: {} bytes", bytes);
  // Rounded up so that a vector load that starts inside stays inside.
  int64_t rounded;
  if (__builtin_add_overflow(bytes, kAlignment, &rounded)) ThrowUsage("Tensor: {} bytes overflow", bytes);
  rounded -= rounded % kAlignment;
  void* data = ::operator new (static_cast<size_t>(rounded), std::align_val_t{kAlignment}, std::nothrow);
  if (data == nullptr) {
    throw Error(ErrorCode::kJob, fmt::format("Tensor: out of memory, {} bytes were asked for", bytes));
  }
  return std::shared_ptr<Storage>(new Storage(static_cast<std::byte*>(data), bytes, nullptr, true, true));
}

std::shared_ptr<Storage> Storage::Adopt(void* data, int64_t bytes, std::shared_ptr<const void> owner, bool writable) {
  return std::shared_ptr<Storage>(new Storage(static_cast<std::byte*>(data), bytes, std::move(owner), writable, false));
}

}  // namespace octavo
