#include "octavo/base/process_memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>

namespace octavo {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();

// The number behind a name, in a file of lines "name number …"; 0 when there is none.
int64_t NumberOf(const fs::path& path, std::string_view name) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (line.size() <= name.size() || !line.starts_with(name) || line[name.size()] != ' ') continue;
    return std::strtoll(line.c_str() + name.size(), nullptr, 10);
  }
  return 0;
}

int64_t NumberIn(const fs::path& path) {
  std::ifstream file(path);
  int64_t number = 0;
  return file >> number ? number : kUnknown;  // "max": no limit
}

struct GroupFiles {
  const char *limit, *used, *inactive, *active;  // the last two: lines of memory.stat
};
constexpr GroupFiles kVersion1{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file",
                               "total_active_file"};
constexpr GroupFiles kVersion2{"memory.max", "memory.current", "inactive_file", "active_file"};

// What the group at `path` below `mount` and those around it leave. In a container the path may be the outer one, which
// is not there: its own group is then the mount itself.
int64_t LeftIn(const fs::path& mount, fs::path path, const GroupFiles& files) {
  int64_t left = kUnknown;
  while (true) {
    const fs::path folder = mount / path;
    const int64_t limit = NumberIn(folder / files.limit), used = NumberIn(folder / files.used);
    if (limit != kUnknown && used != kUnknown) {
      const fs::path stat = folder / "memory.stat";
      const int64_t files_read = NumberOf(stat, files.inactive) + NumberOf(stat, files.active);
      left = std::min(left, std::max<int64_t>(0, limit - std::max<int64_t>(0, used - files_read)));
    }
    if (path.empty()) return left;
    path = path.parent_path();
  }
}

int64_t LeftInGroups(const fs::path& root) {
  std::ifstream groups(root / "proc/self/cgroup");  // "4:memory:/a/b", "0::/a/b"
  int64_t left = kUnknown;
  std::string line;
  while (std::getline(groups, line)) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = ',' + line.substr(first + 1, second - first - 1) + ',';
    const fs::path path = fs::path(line.substr(second + 1)).relative_path();
    if (controllers == ",,") left = std::min(left, LeftIn(root / "sys/fs/cgroup", path, kVersion2));
    if (controllers.find(",memory,") != std::string::npos) {
      left = std::min(left, LeftIn(root / "sys/fs/cgroup/memory", path, kVersion1));
    }
  }
  return left;
}

}  // namespace

int64_t PeakResidentBytes() {
  struct rusage usage = {};
  if (::getrusage(RUSAGE_SELF, &usage) != 0) return 0;
  return static_cast<int64_t>(usage.ru_maxrss) * 1024;
}

int64_t AvailableMemory(const fs::path& root) {
  const int64_t system = NumberOf(root / "proc/meminfo", "MemAvailable:") * 1024;
  const int64_t left = std::min(system == 0 ? kUnknown : system, LeftInGroups(root));
  return left == kUnknown ? 0 : std::max<int64_t>(left, 1);
}

}  // namespace octavo
