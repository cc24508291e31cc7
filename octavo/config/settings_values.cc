// Reading, printing and comparing settings; settings.cc makes them.
#include <algorithm>

#include "octavo/base/check.h"
#include "octavo/base/error.h"
#include "octavo/config/settings.h"

namespace octavo {

const Settings::Entry& Settings::EntryOf(std::string_view key) const {
  const auto at = entries_.find(key);
  OCTAVO_CHECK(at != entries_.end());
  return at->second;
}

const Yaml& Settings::At(std::string_view key) const { return EntryOf(key).value; }

std::string Settings::Text(std::string_view key) const {
  const Yaml& value = At(key);
  return value.is_null() ? "" : value.Text(key);
}

int64_t Settings::Int(std::string_view key) const { return At(key).Int(key); }
double Settings::Number(std::string_view key) const { return At(key).Number(key); }
bool Settings::Bool(std::string_view key) const { return At(key).Bool(key); }
bool Settings::IsNull(std::string_view key) const { return At(key).is_null(); }

std::vector<std::string> Settings::List(std::string_view key) const {
  const Yaml& value = At(key);
  std::vector<std::string> items;
  if (value.kind() == Yaml::Kind::kList) {
    for (const Yaml& item : value.items()) items.push_back(item.Text(key));
  } else if (!Text(key).empty()) {
    items.push_back(Text(key));
  }
  return items;
}

std::string Settings::OriginOf(std::string_view key) const { return EntryOf(key).origin; }

bool Settings::IsGiven(std::string_view key) const {
  const Layer layer = EntryOf(key).layer;
  return layer != Layer::kBase && layer != Layer::kModel;
}

bool Settings::IsAskedFor(std::string_view key) const {
  if (!IsGiven(key)) return false;
  const Layer layer = EntryOf(key).layer;
  if (layer == Layer::kCommandLine || layer == Layer::kEnvironment) return true;
  for (const SettingsDifference& difference : Diff(Load({}), *this)) {
    if (difference.key == key) return true;
  }
  return false;
}

int Settings::overrides() const {
  return static_cast<int>(std::count_if(entries_.begin(), entries_.end(), [](const auto& entry) {
    return entry.second.layer == Layer::kEnvironment || entry.second.layer == Layer::kCommandLine;
  }));
}

std::string Settings::EffectiveYaml() const {
  std::string text = "# Every key of this run. Comments say where a value that is not base.yml's comes from.\n";
  std::string heading;
  for (const KeyInfo& key : table_->keys()) {
    if (key.heading != heading) text += fmt::format("\n# {}\n", key.heading);
    heading = key.heading;
    const Entry& entry = EntryOf(key.name);
    text += fmt::format("{}: {}", key.name, entry.value.Flow());
    if (entry.layer != Layer::kBase) text += fmt::format("  # {}", entry.origin);
    text += '\n';
  }
  return text;
}

std::vector<SettingsDifference> Settings::Diff(const Settings& first, const Settings& second) {
  std::vector<SettingsDifference> result;
  for (const KeyInfo& key : first.table_->keys()) {
    std::string a = first.At(key.name).Flow(), b = second.At(key.name).Flow();
    if (a != b) result.push_back({key.name, std::move(a), std::move(b)});
  }
  return result;
}

std::vector<std::string> Settings::IgnoredKeys() const {
  std::vector<std::string> result;
  for (const KeyInfo& key : table_->keys()) {
    if (key.effect != KeyEffect::kNone) continue;
    const Entry& entry = EntryOf(key.name);
    // One rank, or as many as there are, is what happens.
    if (key.name.ends_with("_parallelism") && (entry.value.Flow() == "1" || entry.value.Flow() == "-1")) continue;
    const bool named = entry.layer == Layer::kEnvironment || entry.layer == Layer::kCommandLine;
    if (named || (entry.layer == Layer::kConfig && !entry.of_model && entry.value.Flow() != key.fallback.Flow())) {
      result.push_back(key.name);
    }
  }
  return result;
}

std::string Settings::IgnoredNote() const {
  const std::vector<std::string> keys = IgnoredKeys();
  if (keys.empty()) return "";
  return fmt::format("no effect on CPU: {} ({} key{})", fmt::join(keys, ", "), keys.size(),
                     keys.size() == 1 ? "" : "s");
}

namespace {

// By its name. dataset_path is not among them: no data that Octavo reads lies there, and lines written for other
// programs give it beside dataset_type=synthetic.
bool IsPath(const KeyInfo& key) {
  if (key.effect != KeyEffect::kUsed || (key.type != KeyType::kText && key.type != KeyType::kList)) return false;
  const std::string_view name = key.name;
  return name == "recipe" || name.ends_with("_directory") || name.ends_with("_dir") || name.ends_with("_files") ||
         name.ends_with("_file") || (name.ends_with("_path") && name != "dataset_path");
}

}  // namespace

void Settings::RequireLocalPaths() const {
  for (const KeyInfo& key : table_->keys()) {
    if (!IsPath(key)) continue;
    for (const std::string& path : List(key.name)) {
      if (path.find("://") == std::string::npos) continue;
      throw Error(ErrorCode::kUsage, fmt::format("{}={}: only local folders", key.name, path),
                  "mount the bucket, or give a local path");
    }
  }
}

void Settings::RequireSupported() const {
  RequireLocalPaths();
  for (const KeyInfo& key : table_->keys()) {
    const Entry& entry = EntryOf(key.name);
    if (key.effect != KeyEffect::kUnsupported || entry.value.Flow() == key.fallback.Flow()) continue;
    throw Error(ErrorCode::kUsage,
                fmt::format("{}={} ({}): Octavo does not do this", key.name, entry.value.Flow(), entry.origin),
                fmt::format("the only value is {}; see octavo config explain {}", key.fallback.Flow(), key.name));
  }
}

}  // namespace octavo
