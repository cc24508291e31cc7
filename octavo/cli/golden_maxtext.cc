// Finds the cases of a folder of MaxText recordings and runs them.
#include "octavo/cli/golden_maxtext.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "octavo/base/error.h"
#include "octavo/cli/golden.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

enum class FileKind : uint8_t { kOther, kTraining, kEngine, kSites };

FileKind KindOf(const fs::path& path) {
  std::ifstream file(path);
  const Json json = Json::parse(file, nullptr, false);
  if (!json.is_object()) return FileKind::kOther;
  if (json.contains("rules") && json.contains("cases")) return FileKind::kSites;
  if (!json.contains("case") || !json.contains("overrides")) return FileKind::kOther;
  return json.contains("slots") ? FileKind::kEngine : FileKind::kTraining;
}

std::vector<fs::path> JsonFiles(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.is_regular_file() && entry.path().extension() == ".json") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

bool Accepts(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) return false;
  for (const fs::path& file : JsonFiles(folder)) {
    if (KindOf(file) != FileKind::kOther) return true;
  }
  return false;
}

MaxTextVerdict RunTraining(const fs::path& file, ThreadPool& pool) {
  const MaxTextCase one = ReadMaxTextCase(file);
  const Settings settings = SettingsOfMaxText(one.config(), one.json.at("overrides"), one.name);
  const MaxTextRecipe recipe = RecipeOfMaxText(settings, one.forced(), one.folder);
  const MaxTextRun run = TrainMaxTextCase(one, settings, recipe, pool);
  std::optional<MaxTextRun> yardstick;
  if (ToleranceOf(recipe).to_float) yardstick = TrainMaxTextCase(one, settings, {}, pool);
  const MaxTextComparison comparison{one, settings, recipe, yardstick ? &*yardstick : nullptr};
  MaxTextVerdict verdict = JudgeMaxTextLogits(comparison, run);
  MaxTextVerdict training = JudgeMaxTextTraining(comparison, run);
  // A choice of an expert that hangs on a last bit falls as in the recording in one of several runs that differ in last
  // bits, or the difference is not one of last bits.
  for (int sample = 1; yardstick && !training.problems.empty() && sample < kMaxTextSamples; ++sample) {
    MaxTextVerdict other = JudgeMaxTextTraining(comparison, TrainMaxTextCase(one, settings, recipe, pool, sample));
    if (!other.problems.empty()) continue;
    training = std::move(other);
    training.summary += fmt::format(" (with last bits moved, sample {} of {})", sample, kMaxTextSamples);
  }
  verdict.problems.insert(verdict.problems.end(), training.problems.begin(), training.problems.end());
  verdict.summary += (verdict.summary.empty() ? "" : ", ") + training.summary;
  if (recipe.refused) verdict.summary += "; the reference trained in float, the product refuses this name";
  return verdict;
}

class Folder {
 public:
  explicit Folder(ThreadPool& pool) : pool_(pool) {}

  void Run(const fs::path& file) {
    const std::string name = file.stem().string();
    switch (KindOf(file)) {
      case FileKind::kTraining:
        Guarded(name, [&] { Take(name, RunTraining(file, pool_)); });
        break;
      case FileKind::kEngine:
        Guarded(name, [&] { Take(name, RunMaxTextEngine(file, pool_)); });
        break;
      case FileKind::kSites:
        Guarded(name, [&] {
          for (const MaxTextSites& sites : CompareMaxTextSites(file)) {
            Take("sites of " + sites.name, {sites.problems, sites.summary});
          }
        });
        break;
      case FileKind::kOther:
        break;
    }
  }
  GoldenFolderResult Finish() { return std::move(result_); }

 private:
  void Guarded(const std::string& name, const std::function<void()>& action) {
    try {
      action();
    } catch (const std::exception& error) {
      result_.failures.push_back({name, error.what()});
    }
  }

  void Take(const std::string& name, const MaxTextVerdict& verdict) {
    if (!verdict.summary.empty()) result_.notes.push_back(fmt::format("{}: {}", name, verdict.summary));
    if (verdict.problems.empty()) {
      ++result_.passed;
      return;
    }
    std::string text = fmt::format("{}", fmt::join(verdict.problems, "\n  "));
    result_.failures.push_back({name, text});
  }

  ThreadPool& pool_;
  GoldenFolderResult result_;
};

GoldenFolderResult RunFolder(const fs::path& path, ThreadPool& pool) {
  Folder folder(pool);
  for (const fs::path& file : JsonFiles(path)) folder.Run(file);
  return folder.Finish();
}

}  // namespace

GoldenFolderKind MaxTextFolderKind() { return {"MaxText training", Accepts, RunFolder}; }

}  // namespace octavo
