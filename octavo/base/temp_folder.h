// A folder of its own under the system's temporary folder, removed with all its content at the end of the scope. Used
// by tests and by jobs that need scratch space; not for publication (publish.h), which works beside its target.
#pragma once

#include <filesystem>
#include <string_view>

namespace octavo {

class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

}  // namespace octavo
