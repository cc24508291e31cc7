#include "octavo/cli/golden.h"

#include <algorithm>
#include <exception>

#include "octavo/base/error.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;

// Without --verbose: enough to see what is wrong, not a screen full.
constexpr int kShownFailures = 5;

std::vector<fs::path> IndexFiles(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    throw Error(ErrorCode::kFile, fmt::format("{} is not a folder", folder.string()),
                "expected a folder of reference data: <group>.json with <group>.safetensors");
  }
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".json" && entry.is_regular_file()) files.push_back(entry.path());
  }
  if (files.empty()) {
    throw Error(ErrorCode::kFile, fmt::format("{} holds no reference data", folder.string()),
                "expected files <group>.json with <group>.safetensors");
  }
  std::sort(files.begin(), files.end());
  return files;
}

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
  const std::vector<fs::path> files = IndexFiles(options.folder);
  const std::vector<GoldenKind> kinds = GoldenKinds();
  size_t widest = 0;
  for (const fs::path& file : files) widest = std::max(widest, file.stem().string().size());
  int64_t all_passed = 0, all_failed = 0;
  int hidden = 0;
  for (const fs::path& file : files) {
    const GoldenGroup group(file);
    int64_t passed = 0, failed = 0;
    for (const GoldenCase& golden : group.cases()) {
      const std::vector<std::string> failures = RunGoldenCase(golden, kinds, pool);
      ++(failures.empty() ? passed : failed);
      if (failures.empty()) continue;
      if (!options.verbose && all_failed + failed > kShownFailures) {
        ++hidden;
        continue;
      }
      std::string text = fmt::format("{}: {}", group.name(), golden.name());
      for (const std::string& failure : failures) text += "\n  " + failure;
      log.Write(LogLevel::kWarning, text);
    }
    print(fmt::format("{:<{}}  {} passed, {} failed\n", group.name(), widest, passed, failed));
    all_passed += passed;
    all_failed += failed;
  }
  if (hidden > 0) log.Write(LogLevel::kWarning, fmt::format("{} more failing cases; --verbose shows them", hidden));
  print(fmt::format("{} passed, {} failed\n", all_passed, all_failed));
  return all_failed == 0 ? 0 : 1;
}

}  // namespace octavo
