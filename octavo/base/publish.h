// Atomic publication: a file or a whole folder appears under its name complete and on disk, or not at all. It is
// written under a temporary name beside the target, fsynced, renamed, and the folder that holds it is fsynced. Whoever
// writes something that must survive a crash (checkpoints, converted models, reports) goes through here. What it does
// not do: lock. Two publishers of one target both succeed, the later one wins.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace octavo {

// The system calls of a publication, in the order in which they come.
enum class PublishStep : uint8_t { kCreate, kWrite, kSync, kRename, kSyncFolder };
std::string_view NameOf(PublishStep step);

// Fault injection for tests: called before each step with the path that it touches. A result other than 0 is taken as
// the errno of the call, which is then not made. It may also end the process, to see what a crash leaves behind.
using PublishFault = std::function<int(PublishStep, const std::filesystem::path&)>;

enum class Replace : uint8_t { kNo, kYes };

// Bytes into one new file, buffered. Used through the two classes below.
class FileWriter {
 public:
  FileWriter(FileWriter&& other) noexcept;
  FileWriter& operator=(FileWriter&& other) noexcept;
  ~FileWriter();

  const std::filesystem::path& path() const { return path_; }
  uint64_t size() const { return size_; }  // bytes accepted so far

  // A full disk, a quota or a write error is a job error that names the file.
  void Write(std::span<const std::byte> bytes);
  void Write(std::string_view text) { Write(std::as_bytes(std::span(text))); }

  // Replaces bytes that were accepted before: a header that is known only at the end. It must lie inside `size()`.
  void Overwrite(uint64_t offset, std::span<const std::byte> bytes);

  // Puts all bytes on disk and closes. A writer that is dropped without Close loses its bytes, and its publication
  // fails.
  void Close();

 private:
  friend class FilePublisher;
  friend class FolderPublisher;
  FileWriter(std::filesystem::path path, std::filesystem::path shown, PublishFault fault,
             std::shared_ptr<int> open_files);
  void Flush();

  std::filesystem::path path_;   // where the bytes go
  std::filesystem::path shown_;  // what error texts call it: the target
  PublishFault fault_;
  std::shared_ptr<int> open_files_;  // of the publisher: how many writers have not been closed
  std::string buffer_;
  uint64_t size_ = 0;
  int fd_ = -1;
};

// One file. Without Publish, or when anything throws, the temporary file is removed and the target is as it was.
class FilePublisher {
 public:
  explicit FilePublisher(std::filesystem::path target, Replace replace = Replace::kYes, PublishFault fault = nullptr);
  ~FilePublisher();
  FilePublisher(const FilePublisher&) = delete;
  FilePublisher& operator=(const FilePublisher&) = delete;

  void Write(std::span<const std::byte> bytes) { writer_->Write(bytes); }
  void Write(std::string_view text) { writer_->Write(text); }
  uint64_t size() const { return writer_->size(); }
  void Publish();

 private:
  std::filesystem::path target_;
  Replace replace_;
  PublishFault fault_;
  std::optional<FileWriter> writer_;
  std::filesystem::path temporary_;
  bool done_ = false;
};

// A folder with files (and folders) in it. With kYes an existing folder is kept until the new one is complete, then
// swapped and removed.
class FolderPublisher {
 public:
  explicit FolderPublisher(std::filesystem::path target, Replace replace = Replace::kNo, PublishFault fault = nullptr);
  ~FolderPublisher();
  FolderPublisher(const FolderPublisher&) = delete;
  FolderPublisher& operator=(const FolderPublisher&) = delete;

  // A new file at a relative path such as "model.safetensors" or "sub/a.json"; folders on the way are made. Close it
  // before Publish.
  FileWriter Create(const std::filesystem::path& relative);
  void WriteFile(const std::filesystem::path& relative, std::string_view text);

  // Where the files are until they are published; for readers that check them first.
  const std::filesystem::path& temporary() const { return temporary_; }

  void Publish();

 private:
  void Swap();

  std::filesystem::path target_;
  Replace replace_;
  PublishFault fault_;
  std::shared_ptr<int> open_files_ = std::make_shared<int>(0);
  std::filesystem::path temporary_;
  bool done_ = false;
};

// The whole content at once.
void PublishFile(const std::filesystem::path& target, std::string_view text, Replace replace = Replace::kYes,
                 PublishFault fault = nullptr);

// Removes what crashed publications of `target` left beside it. Only for a caller that knows no other is running.
// Returns how many there were.
int RemoveTemporaries(const std::filesystem::path& target);

}  // namespace octavo
