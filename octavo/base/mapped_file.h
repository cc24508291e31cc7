// A file mapped read-only into memory. Used by every reader of weights and reference data. Pages come in as they are
// touched; nothing is copied.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace octavo {

class MappedFile {
 public:
  // A file that does not exist, is no regular file or cannot be read is a file error that names it. An empty file is
  // fine.
  explicit MappedFile(std::filesystem::path path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }

  // Hints for the kernel: these bytes will be needed soon; these bytes will not be needed again. Never errors.
  void WillNeed(size_t offset, size_t size) const;
  void DontNeed(size_t offset, size_t size) const;

 private:
  void Advise(size_t offset, size_t size, int advice) const;

  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// The whole pages inside bytes of some mapped file will not be needed soon: they leave this process's memory and come
// back from the file when they are touched again. For readers that copy what they use. Never an error.
void ReleaseMapped(std::span<const std::byte> bytes);

}  // namespace octavo
