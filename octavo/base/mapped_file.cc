#include "octavo/base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "octavo/base/error.h"

namespace octavo {
namespace {

[[noreturn]] void Fail(const std::filesystem::path& path, const char* action, int number) {
  throw Error(ErrorCode::kFile, fmt::format("{}: cannot {}: {}", path.string(), action, std::strerror(number)));
}

// Closes the descriptor at the end of a scope; the mapping outlives it.
struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

}  // namespace

MappedFile::MappedFile(std::filesystem::path path) : path_(std::move(path)) {
  // Without O_NONBLOCK the open of a pipe would wait for a writer for ever.
  const Descriptor file{::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) Fail(path_, "open", errno);
  struct stat status;
  if (::fstat(file.fd, &status) != 0) Fail(path_, "read its size", errno);
  if (!S_ISREG(status.st_mode)) {
    throw Error(ErrorCode::kFile, fmt::format("{} is {}, not a file", path_.string(),
                                              S_ISDIR(status.st_mode) ? "a folder" : "a device or pipe"));
  }
  size_ = static_cast<size_t>(status.st_size);
  if (size_ == 0) return;
  void* const address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (address == MAP_FAILED) Fail(path_, "map", errno);
  data_ = static_cast<const std::byte*>(address);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void MappedFile::WillNeed(size_t offset, size_t size) const { Advise(offset, size, MADV_WILLNEED); }
void MappedFile::DontNeed(size_t offset, size_t size) const { Advise(offset, size, MADV_DONTNEED); }

void MappedFile::Advise(size_t offset, size_t size, int advice) const {
  if (offset >= size_ || size == 0) return;
  size = std::min(size, size_ - offset);
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t begin = offset / page * page;
  // Advice is advice: a kernel without it changes nothing.
  (void)::madvise(const_cast<std::byte*>(data_) + begin, offset + size - begin, advice);
}

void ReleaseMapped(std::span<const std::byte> bytes) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<uintptr_t>(bytes.data()) + page - 1) / page * page;
  const auto end = (reinterpret_cast<uintptr_t>(bytes.data()) + bytes.size()) / page * page;
  if (begin < end) (void)::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace octavo
