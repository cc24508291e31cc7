#include "octavo/tensor/storage.h"

#include <atomic>
#include <new>
#include <utility>

#include "octavo/base/check.h"
#include "octavo/base/error.h"
#include "octavo/tensor/arena.h"
#include "octavo/tensor/blocks.h"
#include "octavo/tensor/memory.h"

namespace octavo {
namespace {

// A meter, not state: nothing is decided by it.
std::atomic<int64_t> live_bytes{0}, peak_bytes{0};

// One of each for the process, because tensors are made everywhere; never destroyed, because tensors may outlive main.
// Memory checkers watch the C++ heap, so under them everything comes from there.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kChecked = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
constexpr bool kChecked = true;
#else
constexpr bool kChecked = false;
#endif
#else
constexpr bool kChecked = false;
#endif

TensorArena& Arena() {
  static TensorArena* const arena = new TensorArena;
  return *arena;
}

TensorBlocks& Blocks() {
  static TensorBlocks* const blocks = new TensorBlocks;
  return *blocks;
}

bool IsLarge(int64_t rounded) { return rounded >= TensorArena::kSmallest && !kChecked; }

std::byte* TakeBlock(int64_t bytes) {
  if (!kChecked) return Blocks().Take(bytes);
  return static_cast<std::byte*>(
      ::operator new (static_cast<size_t>(bytes), std::align_val_t{Storage::kAlignment}, std::nothrow));
}

void GiveBlock(std::byte* block, int64_t bytes) {
  if (!kChecked) return Blocks().Give(block, bytes);
  ::operator delete (block, std::align_val_t{Storage::kAlignment});
}

// A block: the Storage, the counts of its handles, then the data of a small tensor.
constexpr int64_t kStorageBytes = 64, kHeadBytes = 128;

// Puts the counts of the handles behind the Storage, and gives the block back when the last handle is gone.
template <typename T>
struct InBlock {
  using value_type = T;
  std::byte* block;
  int64_t bytes;

  InBlock(std::byte* at, int64_t size) : block(at), bytes(size) {}
  template <typename U>
  InBlock(const InBlock<U>& other) : block(other.block), bytes(other.bytes) {}  // NOLINT: as allocators are converted

  T* allocate(size_t count) {
    static_assert(sizeof(T) <= kHeadBytes - kStorageBytes);
    OCTAVO_CHECK(count == 1);
    return reinterpret_cast<T*>(block + kStorageBytes);
  }
  void deallocate(T*, size_t) { GiveBlock(block, bytes); }
  template <typename U>
  bool operator==(const InBlock<U>& other) const {
    return block == other.block;
  }
};

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
  if (!kChecked) Arena().Release();
}
void ResetPeakTensorBytes() { peak_bytes.store(TensorBytes(), std::memory_order_relaxed); }

Storage::Storage(std::byte* data, int64_t bytes, std::shared_ptr<const void> owner, bool writable, bool owned)
    : data_(data), bytes_(bytes), owner_(std::move(owner)), writable_(writable), owned_(owned) {}

Storage::~Storage() {
  if (!owned_) return;
  Count(-bytes_);
  const int64_t rounded = Rounded(bytes_);
  if (IsLarge(rounded)) Arena().Free(data_, rounded);
}

struct Storage::Destroy {
  void operator()(Storage* storage) const { storage->~Storage(); }
};

// `inside` bytes of data lie in the block itself when `data` is null.
std::shared_ptr<Storage> Storage::Make(int64_t inside, std::byte* data, int64_t bytes,
                                       std::shared_ptr<const void> owner, bool writable, bool owned) {
  static_assert(sizeof(Storage) <= kStorageBytes);
  std::byte* const block = TakeBlock(kHeadBytes + inside);
  if (block == nullptr) return nullptr;
  if (data == nullptr && owned) data = block + kHeadBytes;
  auto* const storage = new (block) Storage(data, bytes, std::move(owner), writable, owned);
  return std::shared_ptr<Storage>(storage, Destroy(), InBlock<Storage>(block, kHeadBytes + inside));
}

std::shared_ptr<Storage> Storage::Allocate(int64_t bytes) {
  if (bytes < 0) ThrowUsage("Tensor: {} bytes", bytes);
  // Rounded up so that a vector load that starts inside stays inside.
  int64_t rounded;
  if (__builtin_add_overflow(bytes, kAlignment + kHeadBytes, &rounded)) ThrowUsage("Tensor: {} bytes overflow", bytes);
  rounded = Rounded(bytes);
  std::shared_ptr<Storage> result;
  if (!IsLarge(rounded)) {
    result = Make(rounded, nullptr, bytes, nullptr, true, true);
  } else if (std::byte* const data = Arena().Allocate(rounded)) {
    result = Make(0, data, bytes, nullptr, true, true);
    if (result == nullptr) Arena().Free(data, rounded);
  }
  if (result == nullptr) {
    throw Error(ErrorCode::kJob, fmt::format("Tensor: out of memory, {} bytes were asked for", bytes));
  }
  Count(bytes);
  return result;
}

std::shared_ptr<Storage> Storage::Adopt(void* data, int64_t bytes, std::shared_ptr<const void> owner, bool writable) {
  std::shared_ptr<Storage> result = Make(0, static_cast<std::byte*>(data), bytes, std::move(owner), writable, false);
  if (result == nullptr) throw Error(ErrorCode::kJob, "Tensor: out of memory");
  return result;
}

}  // namespace octavo
