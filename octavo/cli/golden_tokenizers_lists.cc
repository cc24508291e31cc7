// Reference ids as plain text: NAME.inp holds texts with lines of `__ggml_vocab_test__` between them, NAME.out the ids
// that the reference tokenizer gave, one line for each. Nothing in them says which tokenizer it was: it is looked for
// among those near the folder. One that has the name is taken; else the one that gives the most equal lines, and every
// line must be equal.
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <sstream>

#include "octavo/base/error.h"
#include "octavo/cli/golden.h"
#include "octavo/text/tokenizer.h"
#include "octavo/text/tokenizer_json.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;
using text::Tokenizer;

constexpr std::string_view kSeparator = "\n__ggml_vocab_test__\n";
constexpr size_t kMaxList = size_t{64} << 20;

struct Line {
  std::string text;
  std::vector<int32_t> ids;
};

std::vector<fs::path> Lists(const fs::path& folder) {
  std::vector<fs::path> lists;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    fs::path out = entry.path();
    if (entry.path().extension() == ".inp" && fs::is_regular_file(out.replace_extension(".out"))) {
      lists.push_back(entry.path());
    }
  }
  std::sort(lists.begin(), lists.end());
  return lists;
}

bool IsListFolder(const fs::path& folder) { return !Lists(folder).empty(); }

bool IsTokenizerFile(const fs::path& path) {
  const std::string name = path.filename().string();
  return name == "tokenizer.json" || name == "tokenizer.model" || path.extension() == ".tiktoken";
}

// Folders that may hold the tokenizer, the nearest first: the folder itself, those in it, those beside it, and those
// two levels below the folder above that (data/tokenizers/cases may belong to data/models/x).
std::vector<fs::path> FindPlaces(const fs::path& folder) {
  std::vector<fs::path> places = {folder};
  const auto add_inside = [&](const fs::path& around, std::vector<fs::path>& to) {
    std::error_code ignored;
    const size_t first = to.size();
    for (const fs::directory_entry& entry : fs::directory_iterator(around, ignored)) {
      if (entry.is_directory(ignored)) to.push_back(entry.path());
    }
    std::sort(to.begin() + static_cast<ptrdiff_t>(first), to.end());
  };
  const fs::path beside = folder.parent_path();
  add_inside(folder, places);
  add_inside(beside, places);
  std::vector<fs::path> above;
  if (beside.has_relative_path()) add_inside(beside.parent_path(), above);
  for (const fs::path& one : above) add_inside(one, places);
  return places;
}

// Loads tokenizers as they are asked for, each once.
class Candidates {
 public:
  explicit Candidates(const fs::path& folder) {
    std::set<fs::path> seen;
    for (const fs::path& place : FindPlaces(folder)) {
      std::error_code ignored;
      const auto files = fs::directory_iterator(place, ignored);
      const bool any =
          std::any_of(begin(files), end(files), [](const auto& entry) { return IsTokenizerFile(entry.path()); });
      if (any && seen.insert(place).second) all_.push_back({place, nullptr});
    }
  }
  size_t size() const { return all_.size(); }
  const fs::path& path(size_t i) const { return all_[i].path; }
  const Tokenizer& tokenizer(size_t i) {
    if (all_[i].tokenizer == nullptr) all_[i].tokenizer = text::LoadTokenizer(all_[i].path.string());
    return *all_[i].tokenizer;
  }

 private:
  struct One {
    fs::path path;
    std::unique_ptr<Tokenizer> tokenizer;
  };
  std::vector<One> all_;
};

std::vector<int32_t> ReadIds(const std::string& line, const fs::path& path) {
  std::vector<int32_t> ids;
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    int32_t id = 0;
    const auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (problem != std::errc() || end != word.data() + word.size()) {
      ThrowFile("{}: '{}' is no token id", path.string(), word.substr(0, 30));
    }
    ids.push_back(id);
  }
  return ids;
}

std::vector<Line> ReadLines(const fs::path& list) {
  std::string texts = text::ReadWholeFile(list.string(), kMaxList);
  fs::path out = list;
  out.replace_extension(".out");
  std::istringstream id_lines(text::ReadWholeFile(out.string(), kMaxList));
  std::vector<Line> lines;
  // The last text ends in a separator too, after which nothing follows.
  for (size_t begin = 0; begin < texts.size();) {
    const size_t end = std::min(texts.find(kSeparator, begin), texts.size());
    std::string ids;
    if (!std::getline(id_lines, ids)) ThrowFile("{}: fewer lines than {} has texts", out.string(), list.string());
    lines.push_back({texts.substr(begin, end - begin), ReadIds(ids, out)});
    begin = end + kSeparator.size();
  }
  for (std::string rest; std::getline(id_lines, rest);) {
    if (!rest.empty()) ThrowFile("{}: more lines than {} has texts", out.string(), list.string());
  }
  return lines;
}

using Failures = std::vector<GoldenFolderResult::Failure>;

Failures Compare(const Tokenizer& tokenizer, const fs::path& path, const std::vector<Line>& lines,
                 const std::string& name) {
  Failures failures;
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::vector<int32_t> found = tokenizer.Encode(lines[i].text, {.parse_special = true});
    if (found == lines[i].ids) continue;
    failures.push_back(
        {fmt::format("{} line {}", name, i + 1), fmt::format("with {}: expected {}, found {}", path.string(),
                                                             fmt::join(lines[i].ids, " "), fmt::join(found, " "))});
  }
  return failures;
}

GoldenFolderResult RunListFolder(const fs::path& given, ThreadPool&) {
  GoldenFolderResult result;
  fs::path folder = fs::absolute(given).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  Candidates candidates(folder);
  for (const fs::path& list : Lists(folder)) {
    const std::vector<Line> lines = ReadLines(list);
    const std::string name = list.stem().string();
    size_t named = 0;
    while (named < candidates.size() && candidates.path(named).filename() != name) ++named;
    std::optional<Failures> best;
    if (named < candidates.size()) best = Compare(candidates.tokenizer(named), candidates.path(named), lines, name);
    for (size_t i = 0; named == candidates.size() && i < candidates.size(); ++i) {
      Failures failures;
      try {
        failures = Compare(candidates.tokenizer(i), candidates.path(i), lines, name);
      } catch (const Error&) {
        continue;  // a tokenizer that merely lies nearby need not be one that we read
      }
      if (!best || failures.size() < best->size()) best = std::move(failures);
      if (best->empty()) break;
    }
    if (!best) {
      result.failures.push_back({name, "no tokenizer.json, tokenizer.model or tiktoken file in or near the folder"});
      continue;
    }
    result.passed += static_cast<int64_t>(lines.size() - best->size());
    result.failures.insert(result.failures.end(), best->begin(), best->end());
  }
  return result;
}

}  // namespace

GoldenFolderKind TokenListFolderKind() { return {"lists of token ids", IsListFolder, RunListFolder}; }

}  // namespace octavo
