// What a process may take, from files as the kernel writes them.
#include "octavo/base/process_memory.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "octavo/base/temp_folder.h"

namespace octavo {
namespace {

constexpr int64_t kMiB = 1 << 20;

class Available : public testing::Test {
 protected:
  void Write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << text;
  }
  void WriteMemInfo() {
    Write("proc/meminfo",
          "MemTotal:       16384 kB\nMemFree:         1024 kB\nMemAvailable:    8192 kB\nBuffers: 1 kB\n");
  }
  int64_t InMiB() const { return AvailableMemory(folder_.path()) / kMiB; }

  TempFolder folder_;
};

TEST_F(Available, IsWhatTheSystemHasLeft) {
  EXPECT_EQ(AvailableMemory(folder_.path()), 0);  // unknown
  WriteMemInfo();
  EXPECT_EQ(AvailableMemory(folder_.path()), 8 * kMiB);
}

TEST_F(Available, IsWhatTheGroupLeaves) {
  WriteMemInfo();
  Write("proc/self/cgroup", "0::/a/b\n");
  Write("sys/fs/cgroup/a/b/memory.max", "max\n");
  Write("sys/fs/cgroup/a/b/memory.current", "1048576\n");
  EXPECT_EQ(InMiB(), 8);
  // 5 MiB allowed, 3 in use, of which 1 is pages of files that can be dropped.
  Write("sys/fs/cgroup/a/b/memory.max", "5242880\n");
  Write("sys/fs/cgroup/a/b/memory.current", "3145728\n");
  Write("sys/fs/cgroup/a/b/memory.stat", "anon 2097152\nfile 1048576\ninactive_file 524288\nactive_file 524288\n");
  EXPECT_EQ(InMiB(), 3);
  // The group around it allows less.
  Write("sys/fs/cgroup/a/memory.max", "4194304\n");
  Write("sys/fs/cgroup/a/memory.current", "3145728\n");
  EXPECT_EQ(InMiB(), 1);
  // More in use than allowed.
  Write("sys/fs/cgroup/a/memory.max", "1048576\n");
  EXPECT_EQ(InMiB(), 0);
}

TEST_F(Available, TheFirstVersionAndAContainerThatDoesNotSeeItsOuterPath) {
  WriteMemInfo();
  Write("proc/self/cgroup", "9:pids:/\n4:cpuset,memory:/docker/0123\n0::/\n");
  Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  Write("sys/fs/cgroup/memory/memory.usage_in_bytes", "1048576\n");
  EXPECT_EQ(InMiB(), 8);
  Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "6291456\n");
  Write("sys/fs/cgroup/memory/memory.stat", "inactive_file 9\ntotal_inactive_file 1048576\ntotal_active_file 0\n");
  EXPECT_EQ(InMiB(), 6);
}

TEST(PeakResident, IsSomething) { EXPECT_GT(PeakResidentBytes(), kMiB); }

}  // namespace
}  // namespace octavo
