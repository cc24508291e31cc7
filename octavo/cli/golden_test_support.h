// For tests of the golden runner: files of a folder that a test may change, and what a run over the folder prints.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "octavo/cli/golden.h"

namespace octavo {

inline std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

inline void WriteFile(const std::filesystem::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

struct RunOutput {
  int code;
  std::string out, log;
};

inline RunOutput RunFolder(const std::filesystem::path& folder, bool verbose = false) {
  RunOutput result;
  ThreadPool pool(1);
  Log log([&](std::string_view text) { result.log += text; }, {});
  result.code =
      RunGolden({.folder = folder, .verbose = verbose}, pool, log, [&](std::string_view text) { result.out += text; });
  return result;
}

}  // namespace octavo
