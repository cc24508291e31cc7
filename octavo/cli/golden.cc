#include "octavo/cli/golden.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include "octavo/base/error.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;

// Without --verbose: enough to see what is wrong, not a screen full.
constexpr int kShownFailures = 5;

// One thing to run: an index <group>.json, or a folder with a form of its own (kind), or one whose form nobody knows.
struct GoldenPart {
  fs::path path;
  std::string name;  // for the report: relative to the folder asked for
  std::optional<GoldenFolderKind> kind = std::nullopt;
  bool is_index = false;
  bool inner = false;  // in a folder inside the one asked for
};

// The .json files of a folder; with `paired` those that have a .safetensors of the same name.
std::vector<fs::path> IndexesIn(const fs::path& folder, bool paired) {
  std::vector<fs::path> indexes;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".json" || !entry.is_regular_file()) continue;
    fs::path tensors = entry.path();
    if (!paired || fs::exists(tensors.replace_extension(".safetensors"))) indexes.push_back(entry.path());
  }
  std::sort(indexes.begin(), indexes.end());
  return indexes;
}

// True for files by which reference data is known, whatever they hold.
bool HoldsReferenceData(const fs::path& folder) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string stem = entry.path().stem().string();
    if (entry.is_regular_file() && (stem == "cases" || stem == "expected" || stem == "manifest")) return true;
  }
  return false;
}

void FindParts(const fs::path& folder, const fs::path& root, const std::vector<GoldenFolderKind>& kinds,
               std::vector<GoldenPart>* parts) {
  const bool inner = folder != root;
  const fs::path relative = folder.lexically_relative(root);
  const std::string name =
      inner ? relative.generic_string() : fs::absolute(folder).lexically_normal().filename().string();
  for (const GoldenFolderKind& kind : kinds) {
    if (!kind.accepts(folder)) continue;
    parts->push_back({.path = folder, .name = name, .kind = kind, .inner = inner});
    return;
  }
  const std::vector<fs::path> indexes = IndexesIn(folder, inner);
  for (const fs::path& index : indexes) {
    const std::string stem = index.stem().string();
    parts->push_back({.path = index, .name = inner ? name + "/" + stem : stem, .is_index = true, .inner = inner});
  }
  if (inner && indexes.empty() && HoldsReferenceData(folder)) {
    parts->push_back({.path = folder, .name = name, .inner = true});
  }
  std::vector<fs::path> folders;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.is_directory()) folders.push_back(entry.path());
  }
  std::sort(folders.begin(), folders.end());
  for (const fs::path& one : folders) FindParts(one, root, kinds, parts);
}

std::vector<GoldenPart> FindParts(fs::path folder) {
  if (!folder.has_filename()) folder = folder.parent_path();  // "a/b/"
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    throw Error(ErrorCode::kFile, fmt::format("{} is not a folder", folder.string()),
                "expected a folder of reference data: <group>.json with <group>.safetensors");
  }
  std::vector<GoldenPart> parts;
  FindParts(folder, folder, GoldenFolderKinds(), &parts);
  if (parts.empty()) {
    throw Error(ErrorCode::kFile, fmt::format("{} holds no reference data", folder.string()),
                "expected files <group>.json with <group>.safetensors");
  }
  return parts;
}

// Counts cases, logs the first failures, prints a line per group.
class Tally {
 public:
  Tally(bool verbose, size_t widest, Log& log, const std::function<void(std::string_view)>& print)
      : verbose_(verbose), widest_(widest), log_(log), print_(print) {}

  void Note(std::string_view line) { print_(fmt::format("{}\n", line)); }
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

namespace {

void RunPart(const GoldenPart& part, const std::vector<GoldenKind>& kinds, ThreadPool& pool, Tally& tally) {
  if (part.is_index) {
    const GoldenGroup group(part.path);
    for (const GoldenCase& golden : group.cases()) {
      const std::vector<std::string> failures = RunGoldenCase(golden, kinds, pool);
      if (failures.empty())
        tally.Pass();
      else
        tally.Fail(part.name, golden.name(), failures);
    }
  } else if (part.kind) {
    const GoldenFolderResult result = part.kind->run(part.path, pool);
    for (const std::string& note : result.notes) tally.Note(note);
    tally.Pass(result.passed);
    for (const auto& failure : result.failures) tally.Fail(part.name, failure.name, {failure.problem});
  } else {
    tally.Fail(part.name, "the folder", {"no runner for reference data of this form"});
  }
}

}  // namespace

int RunGolden(const GoldenOptions& options, ThreadPool& pool, Log& log,
              const std::function<void(std::string_view)>& print) {
  const std::vector<GoldenPart> parts = FindParts(options.folder);
  const std::vector<GoldenKind> kinds = GoldenKinds();
  size_t widest = 0;
  for (const GoldenPart& part : parts) widest = std::max(widest, part.name.size());
  Tally tally(options.verbose, widest, log, print);
  for (const GoldenPart& part : parts) {
    try {
      RunPart(part, kinds, pool, tally);
    } catch (const Error& error) {
      if (!part.inner) throw;
      tally.Fail(part.name, "the folder", {error.what()});
    }
    tally.EndGroup(part.name);
  }
  return tally.Finish();
}

}  // namespace octavo
