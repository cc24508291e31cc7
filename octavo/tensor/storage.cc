#include "octavo/tensor/storage.h"

#include <atomic>
#include <new>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/tensor/arena.h"
#include "octavo/tensor/memory.h"

namespace octavo {
namespace {

// A meter, not state: nothing is decided by it.
std::atomic<int64_t> live_bytes{0}, peak_bytes{0};

// One for the process, because tensors are made everywhere; never destroyed, because tensors may outlive main. Memory
// checkers watch the C++ heap, so under them everything comes from there.
TensorArena* Arena() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return nullptr;
#else
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
  return nullptr;
#endif
#endif
  static TensorArena* const arena = new TensorArena;
  return arena;
#endif
}

bool IsLarge(int64_t rounded) { return rounded >= TensorArena::kSmallest && Arena() != nullptr; }

int64_t Rounded(int64_t bytes) {
  return bytes + Storage::kAlignment - (bytes + Storage::kAlignment) % Storage::kAlignment;
}

void Count(int64_t bytes) {
  const int64_t now = live_bytes.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  int64_t peak = peak_bytes.load(std::memory_order_relaxed);
  while (now > peak && !peak_bytes.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
  }
}

}  // namespace

int64_t TensorBytes() { return live_bytes.load(std::memory_order_relaxed); }
int64_t PeakTensorBytes() { return peak_bytes.load(std::memory_order_relaxed); }
void ReleaseFreeTensorMemory() {
  if (Arena() != nullptr) Arena()->Release();
}
void ResetPeakTensorBytes() { peak_bytes.store(TensorBytes(), std::memory_order_relaxed); }

Storage::Storage(std::byte* data, int64_t bytes, std::shared_ptr<const void> owner, bool writable, bool owned)
    : data_(data), bytes_(bytes), owner_(std::move(owner)), writable_(writable), owned_(owned) {}

Storage::~Storage() {
  if (!owned_) return;
  Count(-bytes_);
  const int64_t rounded = Rounded(bytes_);
  if (IsLarge(rounded)) {
    Arena()->Free(data_, rounded);
    return;
  }
  ::operator delete (data_, std::align_val_t{kAlignment});
}

std::shared_ptr<Storage> Storage::Allocate(int64_t bytes) {
  if (bytes < 0) ThrowUsage("Tensor: {} bytes", bytes);
  // Rounded up so that a vector load that starts inside stays inside.
  int64_t rounded;
  if (__builtin_add_overflow(bytes, kAlignment, &rounded)) ThrowUsage("Tensor: {} bytes overflow", bytes);
  rounded = Rounded(bytes);
  void* data = IsLarge(rounded)
                   ? Arena()->Allocate(rounded)
                   : ::operator new (static_cast<size_t>(rounded), std::align_val_t{kAlignment}, std::nothrow);
  if (data == nullptr) {
    throw Error(ErrorCode::kJob, fmt::format("Tensor: out of memory, {} bytes were asked for", bytes));
  }
  Count(bytes);
  return std::shared_ptr<Storage>(new Storage(static_cast<std::byte*>(data), bytes, nullptr, true, true));
}

std::shared_ptr<Storage> Storage::Adopt(void* data, int64_t bytes, std::shared_ptr<const void> owner, bool writable) {
  return std::shared_ptr<Storage>(new Storage(static_cast<std::byte*>(data), bytes, std::move(owner), writable, false));
}

}  // namespace octavo
