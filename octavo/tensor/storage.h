// The memory behind tensors: one 64-byte aligned block that several tensors share, or a piece of somebody else's
// memory (a mapped file) kept alive by an owner handle. Only Tensor uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace octavo {

class Storage {
 public:
  static constexpr int64_t kAlignment = 64;

  // Own memory, uninitialized. A usage error when `bytes` is negative, a job error when the memory cannot be had.
  static std::shared_ptr<Storage> Allocate(int64_t bytes);

  // `owner` keeps `data` valid. The memory is written only if `writable`.
  static std::shared_ptr<Storage> Adopt(void* data, int64_t bytes, std::shared_ptr<const void> owner, bool writable);

  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  bool writable() const { return writable_; }

 private:
  struct Destroy;  // the deleter of the handles
  static std::shared_ptr<Storage> Make(int64_t data_bytes, std::byte* data, int64_t bytes,
                                       std::shared_ptr<const void> owner, bool writable, bool owned);
  Storage(std::byte* data, int64_t bytes, std::shared_ptr<const void> owner, bool writable, bool owned);

  std::byte* data_;
  int64_t bytes_;
  std::shared_ptr<const void> owner_;
  bool writable_, owned_;
};

}  // namespace octavo
