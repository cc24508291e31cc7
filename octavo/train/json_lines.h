// A file of JSON lines that grows with a run: metrics.jsonl, quant.jsonl. When a run goes on from a checkpoint, the
// lines of steps that will be made again are dropped first, so that the file reads as if nothing had happened.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string_view>

namespace octavo::train {

class JsonLinesFile {
 public:
  // Keeps the lines whose "step" is below `first_step` (evaluations count the steps made before them, so theirs may be
  // equal); a last line that was cut off is dropped too.
  JsonLinesFile(std::filesystem::path path, int64_t first_step);
  ~JsonLinesFile();
  JsonLinesFile(const JsonLinesFile&) = delete;
  JsonLinesFile& operator=(const JsonLinesFile&) = delete;

  void Add(std::string_view line);

 private:
  std::filesystem::path path_;
  std::FILE* file_ = nullptr;
};

}  // namespace octavo::train
