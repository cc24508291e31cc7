// Scratch memory of the kernels: packed panels, partial sums. One per caller that runs kernels (a trainer, an engine
// thread, a test), passed by reference, grown on demand and kept, so that a step after the first allocates nothing. Not
// for results, and not shared by two calls that run at the same time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace octavo::kernels {

// Memory aligned to 64 bytes; from 1 MiB on it asks for huge pages, which matter for packed panels (fewer TLB misses).
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t bytes);
  ~Buffer();
  Buffer(Buffer&& other) noexcept : data_(other.data_), bytes_(other.bytes_) {
    other.data_ = nullptr, other.bytes_ = 0;
  }
  Buffer& operator=(Buffer&& other) noexcept;

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

class Workspace {
 public:
  // At least `bytes` bytes, aligned to 64, with undefined content. The same slot gives the same memory again; memory of
  // a slot is valid until the slot is asked for more.
  void* Get(int slot, size_t bytes);
  template <typename T>
  T* Get(int slot, int64_t count) {
    return static_cast<T*>(Get(slot, static_cast<size_t>(count) * sizeof(T)));
  }

  size_t bytes() const;               // held now
  void Release() { slots_.clear(); }  // gives everything back

 private:
  std::vector<Buffer> slots_;
};

}  // namespace octavo::kernels
