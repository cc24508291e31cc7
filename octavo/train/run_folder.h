// The folder of one run: base_output_directory/run_name with config.yml, plan.txt, metrics.jsonl, quant.jsonl,
// tensorboard/ and checkpoints/. Opening it takes a lock, and refuses a folder that holds a run with another config.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "octavo/config/settings.h"

namespace octavo::train {

class RunFolder {
 public:
  // Makes the folder if it is missing. A usage error names the keys when a config is there already that would give
  // other numbers. Keys that only say what is printed or saved may differ, and a folder without checkpoints and metrics
  // is taken over.
  RunFolder(const Settings& settings, std::filesystem::path path);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  // Saves the effective config: from here on the folder holds a run. Called when nothing can be wrong any more, so
  // that a mistake that was mended is no other run.
  void SaveConfig(const Settings& settings) const;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path config() const { return path_ / "config.yml"; }
  std::filesystem::path plan() const { return path_ / "plan.txt"; }
  std::filesystem::path metrics() const { return path_ / "metrics.jsonl"; }
  std::filesystem::path quant() const { return path_ / "quant.jsonl"; }
  std::filesystem::path tensorboard() const { return path_ / "tensorboard"; }
  std::filesystem::path checkpoints() const { return path_ / "checkpoints"; }

 private:
  void Lock();
  bool HoldsWork() const;
  void CheckConfig(const Settings& settings) const;

  std::filesystem::path path_;
  int lock_ = -1;
};

// base_output_directory/run_name. Without a directory it is "out", without a name one made of date and time.
std::filesystem::path RunPath(const Settings& settings);

// The keys of `differences` that change numbers.
std::vector<std::string> KeysThatMatter(const std::vector<SettingsDifference>& differences);

}  // namespace octavo::train
