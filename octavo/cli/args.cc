#include "octavo/cli/args.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/base/nearest.h"
#include "octavo/base/thread_pool.h"
#include "octavo/config/arguments.h"

namespace octavo {
namespace {

constexpr OptionSpec kCommon[] = {
    {"threads", "N", "worker threads (default: OCTAVO_THREADS, else the cores this process may use)"},
    {"json", "", "results as JSON, one object per line"},
    {"quiet", "", "no progress and no notes"},
    {"color", "WHEN", "auto, always or never"},
    {"help", "", "this page"},
};

std::string Normalized(std::string_view name) {
  std::string result(name);
  std::replace(result.begin(), result.end(), '-', '_');
  return result;
}

const OptionSpec* FindOption(const VerbSpec& verb, std::string_view name) {
  for (const OptionSpec& option : verb.options) {
    if (option.name == name) return &option;
  }
  for (const OptionSpec& option : kCommon) {
    if (option.name == name) return &option;
  }
  return nullptr;
}

[[noreturn]] void ThrowUnknown(const VerbSpec& verb, std::string_view name) {
  std::vector<std::string_view> known;
  for (const OptionSpec& option : verb.options) known.push_back(option.name);
  for (const OptionSpec& option : kCommon) known.push_back(option.name);
  const std::vector<std::string> nearest = NearestNames(name, known, 3);
  throw Error(ErrorCode::kUsage, fmt::format("octavo {} has no option '{}'", verb.name, name),
              nearest.empty()
                  ? fmt::format("see octavo {} --help", verb.name)
                  : fmt::format("did you mean '{}'? See octavo {} --help", fmt::join(nearest, "', '"), verb.name));
}

// Whether a name that is none of the verb's options is a likely slip of one of them: two edits at most, and neither a
// key nor nearer to one. Without this the hint would name keys only: `prompt` for `prot`.
bool IsSlipOfOption(const VerbSpec& verb, std::string_view name) {
  int least = std::min(2, static_cast<int>(name.size()) / 2) + 1;
  const int limit = least;
  for (const OptionSpec& option : verb.options) least = std::min(least, EditDistance(name, option.name));
  for (const OptionSpec& option : kCommon) least = std::min(least, EditDistance(name, option.name));
  if (least == limit) return false;
  const KeyTable keys = KeyTable::BuiltIn();
  return std::all_of(keys.keys().begin(), keys.keys().end(),
                     [&](const KeyInfo& key) { return EditDistance(name, key.name) >= least; });
}

// True for a word like `key=value`, where key is a plain name: `a/b=c` and `=x` are positionals.
bool LooksLikeAssignment(std::string_view word) {
  const size_t equals = word.find('=');
  if (equals == std::string_view::npos || equals == 0) return false;
  return std::all_of(word.begin(), word.begin() + equals,
                     [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-'; });
}

// Moves one setting (`key=value`, `--key value`, …) to `settings` and says how many words it was.
size_t TakeSetting(std::span<const std::string_view> words, std::vector<std::string>& settings) {
  const std::vector<std::string> rest(words.begin(), words.begin() + std::min<std::ptrdiff_t>(2, std::ssize(words)));
  // Types are needed only for a bare --key, and reading the table takes some milliseconds.
  const bool bare = rest[0].find('=') == std::string::npos;
  const auto count = static_cast<size_t>(bare ? std::max(SettingLength(KeyTable::BuiltIn(), rest), 1) : 1);
  settings.insert(settings.end(), rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(count));
  return count;
}

void AppendOptions(std::string& page, std::span<const OptionSpec> options) {
  for (const OptionSpec& option : options) {
    std::string name = fmt::format("--{}", option.name);
    if (!option.value.empty()) name += fmt::format("={}", option.value);
    page += fmt::format("  {:<24} {}\n", name, option.help);
  }
}

}  // namespace

std::span<const OptionSpec> CommonOptions() { return kCommon; }

Args Args::Parse(const VerbSpec& verb, std::span<const std::string_view> words) {
  Args args;
  bool options_ended = false;
  for (size_t i = 0; i < words.size(); ++i) {
    std::string_view word = words[i];
    if (!options_ended && word == "--") {
      options_ended = true;
      continue;
    }
    const bool dashed = !options_ended && word.size() > 1 && word[0] == '-';
    if (options_ended || (!dashed && !LooksLikeAssignment(word))) {
      args.positionals_.emplace_back(word);
      continue;
    }
    if (word == "-h") word = "--help";
    if (word == "-o" && FindOption(verb, "output") != nullptr) word = "--output";
    if (dashed) {
      if (!word.starts_with("--")) ThrowUnknown(verb, word);
      word.remove_prefix(2);
    }
    const size_t equals = word.find('=');
    const std::string name = Normalized(word.substr(0, equals));
    const OptionSpec* option = FindOption(verb, name);
    if (option == nullptr && verb.takes_settings && !IsSlipOfOption(verb, name)) {
      i += TakeSetting(words.subspan(i), args.settings_) - 1;
      continue;
    }
    if (option == nullptr) ThrowUnknown(verb, name);
    std::string value = "true";
    if (equals != std::string_view::npos) {
      value = word.substr(equals + 1);
    } else if (!option->value.empty()) {
      if (i + 1 == words.size()) {
        ThrowUsage("octavo {}: --{} needs a value ({})", verb.name, name, option->value);
      }
      value = words[++i];
    }
    if (!args.values_.emplace(name, value).second) ThrowUsage("octavo {}: '{}' is given twice", verb.name, name);
  }
  const int found = static_cast<int>(args.positionals_.size());
  if (!args.Has("help") && (found < verb.least_positionals || found > verb.most_positionals)) {
    throw Error(ErrorCode::kUsage,
                found > verb.most_positionals
                    ? fmt::format("octavo {}: unexpected argument '{}'", verb.name,
                                  args.positionals_[static_cast<size_t>(verb.most_positionals)])
                    : fmt::format("octavo {}: an argument is missing", verb.name),
                fmt::format("usage: octavo {} {}", verb.name, verb.synopsis));
  }
  return args;
}

bool Args::Switch(std::string_view name) const {
  const auto at = values_.find(std::string(name));
  if (at == values_.end()) return false;
  if (at->second == "true" || at->second == "1" || at->second == "True") return true;
  if (at->second == "false" || at->second == "0" || at->second == "False") return false;
  ThrowUsage("{}='{}': expected true or false", name, at->second);
}

std::string Args::Text(std::string_view name, std::string_view otherwise) const {
  const auto at = values_.find(std::string(name));
  return at == values_.end() ? std::string(otherwise) : at->second;
}

int64_t Args::Int(std::string_view name, int64_t otherwise, int64_t least, int64_t most) const {
  const auto at = values_.find(std::string(name));
  if (at == values_.end()) return otherwise;
  std::string digits = at->second;
  std::erase(digits, '_');
  int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || value < least || value > most) {
    ThrowUsage("{}='{}': expected a whole number from {} to {}", name, at->second, least, most);
  }
  return value;
}

int Args::Threads() const { return ChooseThreads(static_cast<int>(Int("threads", 0, 1, 1024))); }

std::string HelpPage(const VerbSpec& verb) {
  std::string page = fmt::format("octavo {} {}\n  {}\n", verb.name, verb.synopsis, verb.summary);
  if (!verb.details.empty()) page += fmt::format("\n{}\n", verb.details);
  if (!verb.options.empty()) {
    page += "\nOptions (--key=value, --key value and key=value mean the same):\n";
    AppendOptions(page, verb.options);
  }
  if (verb.takes_settings) {
    page += "\nEvery key of the config may be set: key=value. octavo config explain KEY says what one is for.\n";
  }
  page += "\nCommon options:\n";
  AppendOptions(page, kCommon);
  return page;
}

}  // namespace octavo
