#include "octavo/data/file_list.h"

#include <glob.h>

#include <algorithm>

#include "octavo/base/error.h"

namespace octavo::data {
namespace {

bool IsPattern(const std::string& name) { return name.find_first_of("*?[") != std::string::npos; }

std::vector<std::string> Matches(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> result;
  if (::glob(pattern.c_str(), 0, nullptr, &found) == 0) {
    result.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  }
  ::globfree(&found);
  std::sort(result.begin(), result.end());  // by bytes, whatever the locale
  return result;
}

}  // namespace

std::vector<std::filesystem::path> ExpandFiles(const std::vector<std::string>& names, const std::string& prefix,
                                               std::string_view key) {
  std::vector<std::filesystem::path> files;
  for (const std::string& name : names) {
    const std::string full = prefix.empty() ? name : (std::filesystem::path(prefix) / name).string();
    std::error_code ignored;
    const bool plain = std::filesystem::exists(full, ignored);
    const std::vector<std::string> found = plain ? std::vector<std::string>{full} : Matches(full);
    if (found.empty()) {
      throw Error(ErrorCode::kFile,
                  fmt::format("{}: {} '{}'", key, IsPattern(full) ? "no file matches" : "no file", full),
                  fmt::format("relative names start at {}", std::filesystem::current_path(ignored).string()));
    }
    for (const std::string& path : found) {
      if (std::filesystem::is_directory(path, ignored)) {
        if (!plain) continue;  // a pattern may match folders; a folder that is named is a mistake
        throw Error(ErrorCode::kFile, fmt::format("{}: {} is a folder, not a file", key, path),
                    fmt::format("name the files in it: '{}/*'", path));
      }
      if (std::find(files.begin(), files.end(), path) == files.end()) files.emplace_back(path);
    }
  }
  return files;
}

}  // namespace octavo::data
