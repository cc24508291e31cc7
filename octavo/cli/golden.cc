#include "octavo/cli/golden.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "octavo/base/error.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;

// Without --verbose: enough to see what is wrong, not a screen full.
constexpr int kShownFailures = 5;

// What there is to run in a folder: indexes, and folders with a form of their own (the folder itself, or any in it).
struct GoldenParts {
  std::vector<fs::path> indexes;
  std::vector<std::pair<fs::path, GoldenFolderKind>> folders;
};

void FindFolders(const fs::path& folder, const std::vector<GoldenFolderKind>& kinds, GoldenParts* parts) {
  for (const GoldenFolderKind& kind : kinds) {
    if (!kind.accepts(folder)) continue;
    parts->folders.emplace_back(folder, kind);
    return;
  }
  std::vector<fs::path> inner;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.is_directory()) inner.push_back(entry.path());
  }
  std::sort(inner.begin(), inner.end());
  for (const fs::path& one : inner) FindFolders(one, kinds, parts);
}

GoldenParts FindParts(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    throw Error(ErrorCode::kFile, fmt::format("{} is not a folder", folder.string()),
                "expected a folder of reference data: <group>.json with <group>.safetensors");
  }
  GoldenParts parts;
  FindFolders(folder, GoldenFolderKinds(), &parts);
  if (parts.folders.empty() || parts.folders[0].first != folder) {
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() == ".json" && entry.is_regular_file()) parts.indexes.push_back(entry.path());
    }
  }
  if (parts.indexes.empty() && parts.folders.empty()) {
    throw Error(ErrorCode::kFile, fmt::format("{} holds no reference data", folder.string()),
                "expected files <group>.json with <group>.safetensors");
  }
  std::sort(parts.indexes.begin(), parts.indexes.end());
  return parts;
}

// Counts cases, logs the first failures, prints a line per group.
class Tally {
 public:
  Tally(bool verbose, size_t widest, Log& log, const std::function<void(std::string_view)>& print)
      : verbose_(verbose), widest_(widest), log_(log), print_(print) {}

  void Pass(int64_t count = 1) { passed_ += count; }
  void Fail(std::string_view group, std::string_view name, const std::vector<std::string>& problems) {
    ++failed_;
    if (!verbose_ && all_failed_ + failed_ > kShownFailures) {
      ++hidden_;
      return;
    }
    std::string text = fmt::format("{}: {}", group, name);
    for (const std::string& problem : problems) text += "\n  " + problem;
    log_.Write(LogLevel::kWarning, text);
  }
  void EndGroup(std::string_view group) {
    print_(fmt::format("{:<{}}  {} passed, {} failed\n", group, widest_, passed_, failed_));
    all_passed_ += std::exchange(passed_, 0);
    all_failed_ += std::exchange(failed_, 0);
  }
  // The exit code.
  int Finish() {
    if (hidden_ > 0)
      log_.Write(LogLevel::kWarning, fmt::format("{} more failing cases; --verbose shows them", hidden_));
    print_(fmt::format("{} passed, {} failed\n", all_passed_, all_failed_));
    return all_failed_ == 0 ? 0 : 1;
  }

 private:
  bool verbose_;
  size_t widest_;
  Log& log_;
  const std::function<void(std::string_view)>& print_;
  int64_t passed_ = 0, failed_ = 0, all_passed_ = 0, all_failed_ = 0, hidden_ = 0;
};

}  // namespace

std::vector<std::string> RunGoldenCase(const GoldenCase& golden, const std::vector<GoldenKind>& kinds,
                                       ThreadPool& pool) {
  for (const GoldenKind& kind : kinds) {
    if (!kind.accepts(golden)) continue;
    GoldenCheck check(golden);
    try {
      kind.run(golden, pool, check);
    } catch (const std::exception& error) {
      check.Fail(fmt::format("{}: {}", kind.name, error.what()));
    }
    return check.Finish();
  }
  const std::string_view call = golden.call();
  return {call.empty() ? std::string("a kind of case that is not known")
                       : fmt::format("a kind of case that is not known: {}", call.substr(0, 120))};
}

int RunGolden(const GoldenOptions& options, ThreadPool& pool, Log& log,
              const std::function<void(std::string_view)>& print) {
  const GoldenParts parts = FindParts(options.folder);
  const std::vector<GoldenKind> kinds = GoldenKinds();
  size_t widest = 0;
  for (const fs::path& file : parts.indexes) widest = std::max(widest, file.stem().string().size());
  for (const auto& [folder, kind] : parts.folders) widest = std::max(widest, folder.filename().string().size());
  Tally tally(options.verbose, widest, log, print);
  for (const fs::path& file : parts.indexes) {
    const GoldenGroup group(file);
    for (const GoldenCase& golden : group.cases()) {
      const std::vector<std::string> failures = RunGoldenCase(golden, kinds, pool);
      if (failures.empty())
        tally.Pass();
      else
        tally.Fail(group.name(), golden.name(), failures);
    }
    tally.EndGroup(group.name());
  }
  for (const auto& [folder, kind] : parts.folders) {
    const GoldenFolderResult result = kind.run(folder, pool);
    const std::string group = folder.filename().string();
    tally.Pass(result.passed);
    for (const auto& failure : result.failures) tally.Fail(group, failure.name, {failure.problem});
    tally.EndGroup(group);
  }
  return tally.Finish();
}

}  // namespace octavo
