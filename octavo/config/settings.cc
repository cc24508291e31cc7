#include "octavo/config/settings.h"

#include <algorithm>
#include <filesystem>

#include <unistd.h>

#include "octavo/base/check.h"
#include "octavo/base/error.h"
#include "octavo/base/mapped_file.h"
#include "octavo/base/nearest.h"
#include "octavo/config/arguments.h"
#include "octavo/config/built_in.h"
#include "octavo/config/key_value.h"

namespace octavo {
namespace {

constexpr std::string_view kChainKey = "base_config";
constexpr size_t kLongestChain = 16;

// A config by the name that a user or a file gave it: a path as written, beside the file that names it, or built in.
Yaml ReadConfig(const std::string& name, const std::filesystem::path& beside) {
  std::error_code ignored;
  for (const std::filesystem::path& path : {beside / name, std::filesystem::path(name)}) {
    if (!std::filesystem::exists(path, ignored)) continue;
    if (std::filesystem::is_directory(path, ignored)) ThrowUsage("{} is a folder, not a config", path.string());
    const MappedFile file(path);
    const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
    return Yaml::Parse(text, path.string());
  }
  if (const std::optional<EmbeddedFile> file = FindBuiltInConfig(name)) return Yaml::Parse(file->text, file->name);
  std::vector<std::string_view> known;
  for (const EmbeddedFile& file : BuiltInConfigs()) known.push_back(file.name);
  throw Error(ErrorCode::kUsage, fmt::format("config '{}' is neither a file nor built in", name),
              fmt::format("built in: {} (octavo ls configs)", fmt::join(known, ", ")));
}

// The config and what it builds on, outermost base first. base.yml itself is left out: it is always below.
std::vector<Yaml> ReadChain(const std::string& first) {
  std::vector<Yaml> chain;
  std::vector<std::string> names;
  std::filesystem::path beside;
  for (std::string name = first; !name.empty();) {
    if (std::find(names.begin(), names.end(), name) != names.end() || names.size() == kLongestChain) {
      throw Error(ErrorCode::kUsage, fmt::format("base_config goes round: {} -> {}", fmt::join(names, " -> "), name),
                  "a chain of base_config must end");
    }
    names.push_back(name);
    Yaml file = ReadConfig(name, beside);
    const std::optional<EmbeddedFile> built_in = FindBuiltInConfig(name);
    const bool is_base = built_in && built_in->name == "base.yml" && file.Source() == "base.yml";
    if (is_base) break;
    if (!file.is_null() && file.kind() != Yaml::Kind::kMap) ThrowUsage("{}: expected key: value lines", name);
    const Yaml* next = file.Find(kChainKey);
    beside = std::filesystem::path(file.Source()).parent_path();
    name = next == nullptr || next->is_null() ? "" : next->Text(kChainKey);
    chain.insert(chain.begin(), std::move(file));
  }
  return chain;
}

std::string UpperCase(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

// Keys by the name of their variable: M_STEPS.
std::vector<Assignment> ReadEnvironment(const KeyTable& table, const std::map<std::string, std::string>& environment) {
  std::vector<Assignment> result;
  for (const auto& [name, value] : environment) {
    if (!name.starts_with("M_")) continue;
    std::string key = name.substr(2);
    for (char& c : key) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    table.At(key, fmt::format("in the environment ({})", name));
    result.push_back({key, value});
  }
  return result;
}

void CheckGivenOnce(const std::vector<Assignment>& environment, const std::vector<Assignment>& command_line) {
  for (const Assignment& word : command_line) {
    for (const Assignment& variable : environment) {
      if (variable.key != word.key) continue;
      const std::string name = "M_" + UpperCase(word.key);
      throw Error(ErrorCode::kUsage,
                  fmt::format("key '{}' is given by the environment ({}) and on the command line", word.key, name),
                  fmt::format("unset {} or drop {}={}", name, word.key, word.value));
    }
  }
}

}  // namespace

std::map<std::string, std::string> ProcessEnvironment() {
  std::map<std::string, std::string> result;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const size_t equals = text.find('=');
    if (equals != std::string_view::npos) result.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return result;
}

Settings::Settings() : table_(std::make_shared<const KeyTable>(KeyTable::BuiltIn())) {
  for (const KeyInfo& key : table_->keys()) Put(key, key.fallback, Layer::kBase, "base.yml");
}

void Settings::Put(const KeyInfo& key, Yaml value, Layer layer, std::string origin) {
  entries_[key.name] = {std::move(value), layer, std::move(origin), layer == Layer::kModel};
}

void Settings::PutConfig(const Yaml& file) {
  for (const auto& [name, value] : file.fields()) {
    if (name == kChainKey) continue;
    const KeyInfo& key = table_->At(name, fmt::format("in {}", value.Where()));
    Put(key, Canonical(key, value), Layer::kConfig, value.Where());
  }
}

// The model's file goes over base.yml. What the user gave stays, and must agree unless override_model_config says so.
void Settings::PutModel() {
  const std::string model = Text("model_name");
  if (model.empty() || model == "default") return;
  const std::optional<EmbeddedFile> file = FindBuiltInModel(model);
  if (!file) {
    std::vector<std::string> names;
    for (const EmbeddedFile& one : BuiltInModels()) names.emplace_back(one.name.substr(0, one.name.size() - 4));
    const std::vector<std::string_view> known(names.begin(), names.end());
    throw Error(ErrorCode::kUsage, fmt::format("model_name='{}' is not a model", model),
                fmt::format("nearest: {} (octavo ls models)", fmt::join(NearestNames(model, known, 3), ", ")));
  }
  const std::string source = fmt::format("models/{}", file->name);
  const Yaml yaml = Yaml::Parse(file->text, source);
  for (const auto& [name, value] : yaml.fields()) {
    const KeyInfo& key = table_->At(name, fmt::format("in {}", value.Where()));
    Yaml canonical = Canonical(key, value);
    Entry& mine = entries_.find(name)->second;
    if (mine.layer == Layer::kBase) {
      Put(key, std::move(canonical), Layer::kModel, value.Where());
    } else if (mine.value.Flow() == canonical.Flow()) {
      mine.of_model = true;
    } else if (!Bool("override_model_config")) {
      throw Error(
          ErrorCode::kUsage,
          fmt::format("{}={} ({}), but {} has {}", name, mine.value.Flow(), mine.origin, source, canonical.Flow()),
          fmt::format("add override_model_config=true to keep {}, or drop the key", mine.value.Flow()));
    }
  }
}

Settings Settings::Load(const SettingsRequest& request) {
  Settings settings;
  const SettingsWords words = ReadSettingsWords(*settings.table_, request.words);
  const std::vector<Assignment> environment = ReadEnvironment(*settings.table_, request.environment);
  CheckGivenOnce(environment, words.assignments);
  if (!words.config.empty()) {
    settings.config_name_ = words.config;
    for (const Yaml& file : ReadChain(words.config)) settings.PutConfig(file);
  }
  for (const Assignment& one : environment) {
    const KeyInfo& key = *settings.table_->Find(one.key);
    const std::string name = "M_" + UpperCase(one.key);
    settings.Put(key, ValueFromText(key, one.value, fmt::format("in the environment ({})", name)), Layer::kEnvironment,
                 fmt::format("environment {}", name));
  }
  for (const Assignment& one : words.assignments) {
    const KeyInfo& key = *settings.table_->Find(one.key);
    settings.Put(key, ValueFromText(key, one.value, "on the command line"), Layer::kCommandLine, "command line");
  }
  settings.PutModel();
  return settings;
}

Settings Settings::FromText(std::string_view yaml, std::string_view source) {
  Settings settings;
  settings.config_name_ = source;
  settings.PutConfig(Yaml::Parse(yaml, source));
  settings.PutModel();
  return settings;
}

}  // namespace octavo
