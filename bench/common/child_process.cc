#include "bench/common/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "octavo/base/error.h"

namespace octavo::bench {

ChildProcess::ChildProcess(const std::vector<std::string>& words, const std::string& log) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw Error(ErrorCode::kJob, "no pipe");
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const std::string error = log.empty() ? "/dev/null" : log;
  pid_ = ::fork();
  if (pid_ < 0) throw Error(ErrorCode::kJob, "cannot fork");
  if (pid_ == 0) {
    const int file = ::open(error.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
    ::dup2(ends[1], STDOUT_FILENO);
    ::dup2(file, STDERR_FILENO);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  ::close(ends[1]);
  output_ = ends[0];
}

ChildProcess::~ChildProcess() {
  if (!ended_) {
    Signal(SIGKILL);
    Wait();
  }
  ::close(output_);
}

std::string ChildProcess::Line() {
  size_t end = 0;
  while ((end = seen_.find('\n')) == std::string::npos) {
    char bytes[4096];
    const ssize_t count = ::read(output_, bytes, sizeof(bytes));
    if (count <= 0) return "";
    seen_.append(bytes, static_cast<size_t>(count));
  }
  const std::string line = seen_.substr(0, end);
  seen_.erase(0, end + 1);
  return line;
}

void ChildProcess::Signal(int number) const {
  if (!ended_) ::kill(pid_, number);
}

int ChildProcess::Wait() {
  if (ended_) return code_;
  int status = 0;
  ::waitpid(pid_, &status, 0);
  ended_ = true;
  return code_ = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

bool ChildProcess::Running() {
  if (ended_) return false;
  int status = 0;
  if (::waitpid(pid_, &status, WNOHANG) == 0) return true;
  ended_ = true;
  code_ = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return false;
}

int64_t ChildProcess::ResidentKiB() const {
  std::ifstream file(fmt::format("/proc/{}/statm", pid_));
  int64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * ::sysconf(_SC_PAGESIZE) / 1024;
}

int64_t ChildProcess::OpenFiles() const {
  std::error_code failure;
  std::filesystem::directory_iterator entries(fmt::format("/proc/{}/fd", pid_), failure);
  return failure ? 0 : std::distance(begin(entries), end(entries));
}

}  // namespace octavo::bench
