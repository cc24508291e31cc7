// A program started beside a benchmark: the server under test, or a peer. Its standard output is read line by line, its
// resident memory comes from the system. Killed with the object that owns it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace octavo::bench {

class ChildProcess {
 public:
  // words[0] is the program. What it says on standard error goes to `log`, or nowhere when that is empty.
  explicit ChildProcess(const std::vector<std::string>& words, const std::string& log = "");
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  // The next line of its standard output; empty at the end.
  std::string Line();
  void Signal(int number) const;
  // Waits for the end: its exit code, or -signal.
  int Wait();
  bool Running();
  int64_t ResidentKiB() const;
  // Entries of its table of open files: connections that are never closed show here.
  int64_t OpenFiles() const;

 private:
  pid_t pid_ = -1;
  int output_ = -1;
  int code_ = 0;
  bool ended_ = false;
  std::string seen_;
};

}  // namespace octavo::bench
