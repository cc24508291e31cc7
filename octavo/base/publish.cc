#include "octavo/base/publish.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <system_error>
#include <utility>
#include <vector>

#include "octavo/base/check.h"
#include "octavo/base/error.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBuffer = size_t{1} << 20;
constexpr uint64_t kWriteback = uint64_t{16} << 20;
constexpr std::string_view kMark = ".octavo-tmp-";

std::string_view Hint(int number) {
  switch (number) {
    case ENOSPC:
    case EDQUOT:
      return "the disk or the quota is full; nothing was published";
    case EROFS:
      return "the disk is read-only; choose a folder that can be written";
    case EACCES:
    case EPERM:
      return "no permission; choose a folder that can be written";
    case EFBIG:
      return "the file is over the size limit of the process or the disk; nothing was published";
    case ENOENT:
    case ENOTDIR:
      return "the folder it should be in does not exist";
    default:
      return "nothing was published";
  }
}

[[noreturn]] void Fail(const fs::path& shown, std::string_view action, int number) {
  throw Error(ErrorCode::kJob, fmt::format("{}: cannot {}: {}", shown.string(), action, std::strerror(number)),
              std::string(Hint(number)));
}

// Asks the test's fault function first; then makes the call until it is not interrupted. Returns errno or 0.
template <typename Call>
int Step(const PublishFault& fault, PublishStep step, const fs::path& path, Call call) {
  if (fault) {
    if (const int number = fault(step, path); number != 0) return number;
  }
  while (true) {
    if (call() >= 0) return 0;
    if (errno != EINTR) return errno;
  }
}

// A name beside the target that no one else has: hidden, with the target's name in it so that it can be found again.
fs::path TemporaryName(const fs::path& target) {
  uint64_t random = 0;
  if (::getrandom(&random, sizeof(random), 0) != sizeof(random)) {
    random = static_cast<uint64_t>(::getpid()) << 32 ^ static_cast<uint64_t>(::time(nullptr));
  }
  return target.parent_path() / fmt::format(".{}{}{:016x}", target.filename().string(), kMark, random);
}

// "out/x/" and "out/x" are the same target.
fs::path Normal(fs::path target) {
  if (!target.has_filename()) target = target.parent_path();
  if (target.filename().empty() || target.filename() == "." || target.filename() == "..") {
    ThrowUsage("'{}' is not a name to write to", target.string());
  }
  return target;
}

int OpenFolder(const fs::path& path) { return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }

void SyncFolder(const PublishFault& fault, const fs::path& folder, const fs::path& shown) {
  const fs::path path = folder.empty() ? fs::path(".") : folder;
  const int number = Step(fault, PublishStep::kSyncFolder, path, [&] {
    const int fd = OpenFolder(path);
    if (fd < 0) return -1;
    const int result = ::fsync(fd);
    const int saved = errno;
    ::close(fd);
    errno = saved;
    // Some file systems cannot fsync a folder; there is nothing better to do on them.
    return result < 0 && (saved == EINVAL || saved == ENOTSUP) ? 0 : result;
  });
  if (number != 0) Fail(shown, "put its folder on disk", number);
}

bool Exists(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(path, ignored));
}

[[noreturn]] void FailExists(const fs::path& target) {
  throw Error(ErrorCode::kUsage, fmt::format("{} exists", target.string()),
              "add --force to replace it; it is kept until the new one is complete");
}

// Renames without replacing. Kernels and file systems without the flag get a check, which is not atomic but harmless.
int RenameNew(const fs::path& from, const fs::path& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return -1;
  if (Exists(to)) {
    errno = EEXIST;
    return -1;
  }
  return ::rename(from.c_str(), to.c_str());
}

// Asks the kernel to begin with what has come so far, in large pieces, so that the final fsync finds little left to do.
// Only a hint: a failure shows at the fsync.
void StartWriteback(int fd, uint64_t size, uint64_t newest) {
  const uint64_t begin = (size - newest) / kWriteback, end = size / kWriteback;
  if (begin == end) return;
  ::sync_file_range(fd, static_cast<off_t>(begin * kWriteback), static_cast<off_t>((end - begin) * kWriteback),
                    SYNC_FILE_RANGE_WRITE);
}

}  // namespace

std::string_view NameOf(PublishStep step) {
  constexpr std::string_view kNames[] = {"create", "write", "sync", "rename", "sync folder"};
  return kNames[static_cast<size_t>(step)];
}

FileWriter::FileWriter(fs::path path, fs::path shown, PublishFault fault, std::shared_ptr<int> open_files)
    : path_(std::move(path)), shown_(std::move(shown)), fault_(std::move(fault)), open_files_(std::move(open_files)) {
  const int number = Step(fault_, PublishStep::kCreate, path_,
                          [&] { return fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666); });
  if (number != 0) Fail(shown_, "create", number);
  ++*open_files_;
  buffer_.reserve(kBuffer);
}

FileWriter::FileWriter(FileWriter&& other) noexcept
    : path_(std::move(other.path_)),
      shown_(std::move(other.shown_)),
      fault_(std::move(other.fault_)),
      open_files_(std::move(other.open_files_)),
      buffer_(std::move(other.buffer_)),
      size_(other.size_),
      fd_(std::exchange(other.fd_, -1)) {}

FileWriter& FileWriter::operator=(FileWriter&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(shown_, other.shown_);
  std::swap(fault_, other.fault_);
  std::swap(open_files_, other.open_files_);
  std::swap(buffer_, other.buffer_);
  std::swap(size_, other.size_);
  std::swap(fd_, other.fd_);
  return *this;
}

FileWriter::~FileWriter() {
  if (fd_ >= 0) ::close(fd_);
}

void FileWriter::Write(std::span<const std::byte> bytes) {
  OCTAVO_CHECK(fd_ >= 0);
  size_ += bytes.size();
  while (!bytes.empty()) {
    const size_t room = std::min(kBuffer - buffer_.size(), bytes.size());
    buffer_.append(reinterpret_cast<const char*>(bytes.data()), room);
    bytes = bytes.subspan(room);
    if (buffer_.size() == kBuffer) Flush();
  }
}

void FileWriter::Flush() {
  size_t written = 0;
  while (written < buffer_.size()) {
    const int number = Step(fault_, PublishStep::kWrite, path_, [&] {
      const ssize_t count = ::write(fd_, buffer_.data() + written, buffer_.size() - written);
      if (count > 0) written += static_cast<size_t>(count);
      return count > 0 ? 0 : -1;
    });
    if (number != 0) Fail(shown_, fmt::format("write (at byte {})", size_ - buffer_.size() + written), number);
  }
  StartWriteback(fd_, size_, buffer_.size());
  buffer_.clear();
}

void FileWriter::Overwrite(uint64_t offset, std::span<const std::byte> bytes) {
  OCTAVO_CHECK(fd_ >= 0 && offset <= size_ && bytes.size() <= size_ - offset);
  Flush();
  size_t written = 0;
  while (written < bytes.size()) {
    const int number = Step(fault_, PublishStep::kWrite, path_, [&] {
      const ssize_t count =
          ::pwrite(fd_, bytes.data() + written, bytes.size() - written, static_cast<off_t>(offset + written));
      if (count > 0) written += static_cast<size_t>(count);
      return count > 0 ? 0 : -1;
    });
    if (number != 0) Fail(shown_, fmt::format("write (at byte {})", offset + written), number);
  }
}

void FileWriter::Close() {
  if (fd_ < 0) return;
  Flush();
  if (const int number = Step(fault_, PublishStep::kSync, path_, [&] { return ::fsync(fd_); }); number != 0) {
    Fail(shown_, "put on disk", number);
  }
  // Some network disks report the last error only here.
  const int result = ::close(std::exchange(fd_, -1));
  if (result != 0 && errno != EINTR) Fail(shown_, "close", errno);
  --*open_files_;
}

FilePublisher::FilePublisher(fs::path target, Replace replace, PublishFault fault)
    : target_(Normal(std::move(target))), replace_(replace), fault_(std::move(fault)) {
  if (replace_ == Replace::kNo && Exists(target_)) FailExists(target_);
  temporary_ = TemporaryName(target_);
  writer_.emplace(FileWriter(temporary_, target_, fault_, std::make_shared<int>(0)));
}

FilePublisher::~FilePublisher() {
  writer_.reset();
  if (!done_) ::unlink(temporary_.c_str());
}

void FilePublisher::Publish() {
  OCTAVO_CHECK(!done_);
  writer_->Close();
  const int number = Step(fault_, PublishStep::kRename, target_, [&] {
    return replace_ == Replace::kYes ? ::rename(temporary_.c_str(), target_.c_str()) : RenameNew(temporary_, target_);
  });
  if (number == EEXIST && replace_ == Replace::kNo) FailExists(target_);
  if (number != 0) Fail(target_, "rename into place", number);
  done_ = true;
  SyncFolder(fault_, target_.parent_path(), target_);
}

FolderPublisher::FolderPublisher(fs::path target, Replace replace, PublishFault fault)
    : target_(Normal(std::move(target))), replace_(replace), fault_(std::move(fault)) {
  if (Exists(target_)) {
    if (replace_ == Replace::kNo) FailExists(target_);
    if (!fs::is_directory(fs::symlink_status(target_))) {
      throw Error(ErrorCode::kUsage, fmt::format("{} is not a folder", target_.string()),
                  "choose another name, or remove it first");
    }
  }
  temporary_ = TemporaryName(target_);
  const int number = Step(fault_, PublishStep::kCreate, temporary_, [&] { return ::mkdir(temporary_.c_str(), 0777); });
  if (number != 0) Fail(target_, "create", number);
}

FolderPublisher::~FolderPublisher() {
  std::error_code ignored;
  if (!done_) fs::remove_all(temporary_, ignored);
}

FileWriter FolderPublisher::Create(const fs::path& relative) {
  OCTAVO_CHECK(!done_);
  const fs::path clean = relative.lexically_normal();
  const bool outside =
      clean.is_absolute() || clean.empty() || clean == "." || !clean.has_filename() || *clean.begin() == "..";
  if (outside) ThrowUsage("'{}' is not a path inside {}", relative.string(), target_.string());
  std::error_code error;
  fs::create_directories((temporary_ / clean).parent_path(), error);
  if (error) Fail(target_ / clean, "create its folder", error.value());
  return FileWriter(temporary_ / clean, target_ / clean, fault_, open_files_);
}

void FolderPublisher::WriteFile(const fs::path& relative, std::string_view text) {
  FileWriter writer = Create(relative);
  writer.Write(text);
  writer.Close();
}

void FolderPublisher::Publish() {
  OCTAVO_CHECK(!done_);
  OCTAVO_CHECK(*open_files_ == 0);  // a file that was not closed may be incomplete
  // The entries of every folder inside, deepest first, then the folder itself.
  std::vector<fs::path> folders = {temporary_};
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(temporary_)) {
    if (entry.is_directory() && !entry.is_symlink()) folders.push_back(entry.path());
  }
  for (auto folder = folders.rbegin(); folder != folders.rend(); ++folder) SyncFolder(fault_, *folder, target_);
  Swap();
  SyncFolder(fault_, target_.parent_path(), target_);
}

void FolderPublisher::Swap() {
  const bool replacing = replace_ == Replace::kYes && Exists(target_);
  bool exchanged = false;
  const int number = Step(fault_, PublishStep::kRename, target_, [&] {
    if (!replacing) return RenameNew(temporary_, target_);
    if (::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) == 0) {
      exchanged = true;
      return 0;
    }
    if (errno != EINVAL && errno != ENOSYS) return -1;
    // No exchange here: move the old one aside. Between the two renames the target is missing, never incomplete.
    const fs::path aside = TemporaryName(target_);
    if (::rename(target_.c_str(), aside.c_str()) != 0) return -1;
    if (::rename(temporary_.c_str(), target_.c_str()) != 0) {
      const int saved = errno;
      ::rename(aside.c_str(), target_.c_str());
      errno = saved;
      return -1;
    }
    std::error_code ignored;
    fs::remove_all(aside, ignored);
    return 0;
  });
  if (number == EEXIST || number == ENOTEMPTY) FailExists(target_);
  if (number != 0) Fail(target_, "rename into place", number);
  done_ = true;
  if (exchanged) {
    // The temporary name now holds the old folder. The new one must be on disk before the old one goes.
    SyncFolder(fault_, target_.parent_path(), target_);
    std::error_code ignored;
    fs::remove_all(temporary_, ignored);
  }
}

void PublishFile(const fs::path& target, std::string_view text, Replace replace, PublishFault fault) {
  FilePublisher publisher(target, replace, std::move(fault));
  publisher.Write(text);
  publisher.Publish();
}

int RemoveTemporaries(const fs::path& target) {
  const fs::path normal = Normal(target);
  const fs::path folder = normal.has_parent_path() ? normal.parent_path() : fs::path(".");
  const std::string prefix = fmt::format(".{}{}", normal.filename().string(), kMark);
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.size() == prefix.size() + 16 && name.starts_with(prefix)) found.push_back(it->path());
  }
  int removed = 0;
  for (const fs::path& path : found) {
    std::error_code ignored;
    if (fs::remove_all(path, ignored) > 0 && !ignored) ++removed;
  }
  return removed;
}

}  // namespace octavo
