// Files and settings for the tests of this folder.
#pragma once

#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/base/temp_folder.h"
#include "octavo/data/source.h"

namespace octavo::data {

class DataFolder {
 public:
  std::string Write(const std::string& name, const std::string& bytes) {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return Path(name);
  }
  std::string Path(const std::string& name) const { return (folder_ / name).string(); }

 private:
  TempFolder folder_;
};

inline Settings SettingsOf(std::vector<std::string> words) { return Settings::Load({std::move(words)}); }

// What a call throws: its text after checking the exit code.
template <typename F>
std::string ErrorText(int code, F call) {
  try {
    call();
  } catch (const Error& error) {
    return error.exit_code() == code ? error.what() : fmt::format("exit {}: {}", error.exit_code(), error.what());
  }
  return "no error";
}

// Segments of a batch as (inputs, targets), in order: what the model is asked to learn.
struct Piece {
  std::vector<int32_t> inputs, targets;
};

inline std::vector<Piece> PiecesOf(const Batch& batch) {
  std::vector<Piece> pieces;
  const int64_t rows = batch.inputs.dim(0), length = batch.inputs.dim(1);
  for (int64_t row = 0; row < rows; ++row) {
    int32_t last = 0;
    for (int64_t t = 0; t < length; ++t) {
      const int32_t segment = batch.inputs_segmentation.At<int32_t>({row, t});
      if (segment == 0) continue;
      if (segment != last) pieces.emplace_back();
      last = segment;
      pieces.back().inputs.push_back(batch.inputs.At<int32_t>({row, t}));
      pieces.back().targets.push_back(batch.targets.At<int32_t>({row, t}));
    }
  }
  return pieces;
}

inline bool SameBatch(const Batch& a, const Batch& b) {
  return BitEqual(a.inputs, b.inputs) && BitEqual(a.targets, b.targets) &&
         BitEqual(a.inputs_position, b.inputs_position) && BitEqual(a.targets_position, b.targets_position) &&
         BitEqual(a.inputs_segmentation, b.inputs_segmentation) &&
         BitEqual(a.targets_segmentation, b.targets_segmentation);
}

}  // namespace octavo::data
