// octavo config: every key, its value and where the value came from; differences of two configs; what a key is for.
#include <algorithm>
#include <charconv>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "octavo/base/error.h"
#include "octavo/base/nearest.h"
#include "octavo/cli/verbs.h"
#include "octavo/config/built_in.h"
#include "octavo/config/settings.h"

namespace octavo {
namespace {

// A value as JSON: numbers and truth values as such where the key is not text.
nlohmann::json ToJson(const Yaml& value, bool text) {
  switch (value.kind()) {
    case Yaml::Kind::kNull:
      return nullptr;
    case Yaml::Kind::kList: {
      nlohmann::json list = nlohmann::json::array();
      for (const Yaml& item : value.items()) list.push_back(ToJson(item, false));
      return list;
    }
    case Yaml::Kind::kMap: {
      nlohmann::json map = nlohmann::json::object();
      for (const auto& [name, field] : value.fields()) map[name] = ToJson(field, false);
      return map;
    }
    default:
      break;
  }
  const std::string word = value.Text("");
  if (text || value.quoted()) return word;
  if (word == "true" || word == "false") return word == "true";
  int64_t whole = 0;
  const char *begin = word.data(), *end = begin + word.size();
  if (const auto result = std::from_chars(begin, end, whole); result.ec == std::errc() && result.ptr == end)
    return whole;
  double number = 0;
  if (const auto result = std::from_chars(begin, end, number); result.ec == std::errc() && result.ptr == end)
    return number;
  return word;
}

Settings LoadFrom(std::vector<std::string> words) { return Settings::Load({std::move(words), ProcessEnvironment()}); }

void PrintKey(const Settings& settings, const KeyInfo& key, bool json) {
  if (json) {
    const nlohmann::json object = {{"event", "key"},
                                   {"key", key.name},
                                   {"value", ToJson(settings.At(key.name), key.type == KeyType::kText)},
                                   {"origin", settings.OriginOf(key.name)}};
    fmt::print("{}\n", object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    return;
  }
  const std::string line = fmt::format("{}: {}", key.name, settings.At(key.name).Flow());
  fmt::print("{:<48}  # {}\n", line, settings.OriginOf(key.name));
}

// The config file of a word that names one: itself, or that of a run, the folder that holds its config.yml.
std::string ConfigFile(const std::string& name) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(name, ignored)) return name;
  const std::filesystem::path config = std::filesystem::path(name) / "config.yml";
  if (std::filesystem::exists(config, ignored)) return config.string();
  throw Error(ErrorCode::kUsage, fmt::format("{} is a folder without config.yml", name),
              "expected a config file or the folder of a run");
}

Settings LoadSide(const std::string& name) { return Settings::Load({{ConfigFile(name)}, {}}); }

int Show(const Args& args) {
  std::vector<std::string> words, keys;
  std::error_code ignored;
  const KeyTable table = KeyTable::BuiltIn();
  for (size_t i = 1; i < args.positionals().size(); ++i) {
    const std::string& word = args.positionals()[i];
    const bool config =
        word.ends_with(".yml") || (table.Find(word) == nullptr && std::filesystem::is_directory(word, ignored));
    if (config) {
      words.push_back(ConfigFile(word));
    } else {
      keys.push_back(word);
    }
  }
  words.insert(words.end(), args.settings().begin(), args.settings().end());
  const Settings settings = LoadFrom(words);
  if (args.Switch("yaml")) {
    fmt::print("{}", settings.EffectiveYaml());
    return 0;
  }
  for (const std::string& key : keys) PrintKey(settings, settings.table().At(key, "after show"), args.Switch("json"));
  if (!keys.empty()) return 0;
  for (const KeyInfo& key : settings.table().keys()) {
    if (args.Switch("changed") && settings.At(key.name).Flow() == key.fallback.Flow()) continue;
    PrintKey(settings, key, args.Switch("json"));
  }
  const std::string note = settings.IgnoredNote();
  if (!note.empty() && !args.Switch("quiet")) fmt::print(stderr, "note: {}\n", note);
  return 0;
}

int Diff(const Args& args) {
  if (args.positionals().size() != 3 || !args.settings().empty()) {
    throw Error(ErrorCode::kUsage, "octavo config diff takes two configs", "usage: octavo config diff A.yml B.yml");
  }
  const Settings first = LoadSide(args.positionals()[1]), second = LoadSide(args.positionals()[2]);
  const std::vector<SettingsDifference> differences = Settings::Diff(first, second);
  for (const SettingsDifference& one : differences) {
    if (args.Switch("json")) {
      const bool text = first.table().Find(one.key)->type == KeyType::kText;
      const nlohmann::json object = {{"event", "difference"},
                                     {"key", one.key},
                                     {"first", ToJson(first.At(one.key), text)},
                                     {"second", ToJson(second.At(one.key), text)}};
      fmt::print("{}\n", object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    } else {
      fmt::print("{}: {} -> {}\n", one.key, one.first, one.second);
    }
  }
  if (!args.Switch("json") && !args.Switch("quiet")) {
    fmt::print(stderr, "{} key{} of {} differ\n", differences.size(), differences.size() == 1 ? "" : "s",
               first.table().keys().size());
  }
  return 0;
}

std::string EffectOf(const KeyInfo& key) {
  if (key.effect == KeyEffect::kNone) return "no effect on CPU: accepted, and named once";
  if (key.effect == KeyEffect::kUnsupported) return "Octavo does not do this: only the default is taken";
  return "";
}

// Models whose files set a key.
std::vector<std::string> ModelsWith(const std::string& key) {
  std::vector<std::string> names;
  for (const EmbeddedFile& file : BuiltInModels()) {
    const std::string line = fmt::format("\n{}:", key);
    if (file.text.find(line) != std::string_view::npos) names.emplace_back(file.name.substr(0, file.name.size() - 4));
  }
  return names;
}

void ExplainKey(const KeyInfo& key, bool json) {
  const std::vector<std::string> models = ModelsWith(key.name);
  if (json) {
    const nlohmann::json object = {
        {"event", "explain"},        {"key", key.name},
        {"expected", Expected(key)}, {"default", ToJson(key.fallback, key.type == KeyType::kText)},
        {"about", key.about},        {"heading", key.heading},
        {"effect", EffectOf(key)},   {"models", models}};
    fmt::print("{}\n", object.dump());
    return;
  }
  fmt::print("{}   {}; default {}\n", key.name, Expected(key), key.fallback.Flow());
  fmt::print("  {}: {}\n", key.heading, key.about);
  if (!EffectOf(key).empty()) fmt::print("  {}\n", EffectOf(key));
  if (!models.empty()) {
    const size_t shown = std::min<size_t>(models.size(), 4);
    fmt::print("  set by {} model file{}: {}{}\n", models.size(), models.size() == 1 ? "" : "s",
               fmt::join(models.begin(), models.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
               shown < models.size() ? ", …" : "");
  }
  fmt::print("  environment M_{}\n", [&] {
    std::string name = key.name;
    for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    return name;
  }());
}

std::string LowerCase(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// A key by its name; else every key that has the word in its name, comment or heading.
int Explain(const Args& args) {
  if (args.positionals().size() != 2) {
    throw Error(ErrorCode::kUsage, "octavo config explain takes one key or word", "usage: octavo config explain KEY");
  }
  const KeyTable table = KeyTable::BuiltIn();
  std::string word = args.positionals()[1];
  std::replace(word.begin(), word.end(), '-', '_');
  if (const KeyInfo* key = table.Find(word)) {
    ExplainKey(*key, args.Switch("json"));
    return 0;
  }
  const std::string wanted = LowerCase(word);
  bool found = false;
  for (const KeyInfo& key : table.keys()) {
    const std::string text = LowerCase(fmt::format("{} {} {}", key.name, key.about, key.heading));
    if (text.find(wanted) == std::string::npos) continue;
    found = true;
    if (args.Switch("json")) {
      ExplainKey(key, true);
    } else {
      fmt::print("{:<32} {}\n", key.name, key.about);
    }
  }
  if (!found) table.At(word, "and no key's explanation has this word");
  return 0;
}

int RunConfig(const Args& args) {
  const std::string& what = args.positionals()[0];
  if (what == "show") return Show(args);
  if (what == "diff") return Diff(args);
  if (what == "explain") return Explain(args);
  throw Error(ErrorCode::kUsage, fmt::format("octavo config: nothing is called '{}'", what),
              "there are: show, diff, explain");
}

}  // namespace

VerbSpec ConfigVerb() {
  return {.name = "config",
          .synopsis = "show [FILE.yml | RUN] [KEY…] [key=value…] | diff A.yml B.yml | explain KEY|WORD",
          .summary = "every key, its value and where it came from; what a key is for",
          .details =
              "  octavo config show model_name=llama2-7b --changed\n"
              "  octavo config show mine.yml learning_rate steps\n"
              "  octavo config show out/run1 --changed\n"
              "  octavo config diff out/run1 out/run2\n"
              "  octavo config explain remat_policy",
          .least_positionals = 1,
          .most_positionals = 64,
          .options = {{"changed", "", "show: only keys that are not as in base.yml"},
                      {"yaml", "", "show: a config file that gives these settings"}},
          .run = RunConfig,
          .takes_settings = true};
}

}  // namespace octavo
