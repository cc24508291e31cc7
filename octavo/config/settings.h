// The settings of one run: every key with its value and where the value came from. Values go over one another in this
// order: base.yml, a config file with its chain of base_config, the model's file, the environment (M_KEY), the command
// line. Whatever could be a silent mistake is an error: an unknown key, a wrong type, a key that is given twice, a
// model file and a user that disagree. Made once by the command line and passed down by reference; it is never changed.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/config/key_table.h"
#include "octavo/config/yaml.h"

namespace octavo {

struct SettingsRequest {
  // What followed the verb: an optional first FILE.yml, then key=value, --key=value, --key value. A --key of a bool
  // needs no value.
  std::vector<std::string> words;
  // Only names that begin with M_ are looked at.
  std::map<std::string, std::string> environment = {};
};

// The environment of this process, for SettingsRequest.
std::map<std::string, std::string> ProcessEnvironment();

struct SettingsDifference {
  std::string key, first, second;  // values as one line of YAML
};

class Settings {
 public:
  static Settings Load(const SettingsRequest& request);
  // The text of a saved config ("config.yml" of a run) over base.yml; `source` begins error messages.
  static Settings FromText(std::string_view yaml, std::string_view source);

  // An unknown key is a bug of the caller (OCTAVO_CHECK), a value of another type a usage Error.
  const Yaml& At(std::string_view key) const;
  std::string Text(std::string_view key) const;  // null is ""
  int64_t Int(std::string_view key) const;
  double Number(std::string_view key) const;
  bool Bool(std::string_view key) const;
  std::vector<std::string> List(
      std::string_view key) const;  // of a list; one text is a list of one, null and "" of none
  bool IsNull(std::string_view key) const;

  // "base.yml", "my.yml:3", "models/gpt3-52k.yml:4", "environment M_STEPS", "command line".
  std::string OriginOf(std::string_view key) const;
  // True when the value was given by the user: a config file, the environment or the command line.
  bool IsGiven(std::string_view key) const;
  // Whether the user asked for this value: on the command line, in the environment, or by a value in a file that is not
  // the default. The config that a run saves holds every key, so standing in a file says nothing by itself.
  bool IsAskedFor(std::string_view key) const;
  // "base.yml", or the file that was named first.
  const std::string& config_name() const { return config_name_; }
  // How many keys the environment and the command line set.
  int overrides() const;

  // Every key as YAML that FromText and Load read back to the same values; values that are not base.yml's say where
  // they come from.
  std::string EffectiveYaml() const;
  // Keys with different values, in the order of base.yml.
  static std::vector<SettingsDifference> Diff(const Settings& first, const Settings& second);

  // Keys that the user gave and that do nothing on a CPU. From files only those that differ from the default: a saved
  // config holds every key.
  std::vector<std::string> IgnoredKeys() const;
  // "no effect on CPU: megablox, dump_hlo (2 keys)"; empty when there are none.
  std::string IgnoredNote() const;
  // Throws a usage Error when a key asks for something that Octavo does not do, or RequireLocalPaths does. For jobs,
  // before they start.
  void RequireSupported() const;
  // Throws a usage Error when a file or folder is given as gs://…, which would mean the local folder "gs:".
  void RequireLocalPaths() const;

  const KeyTable& table() const { return *table_; }

 private:
  enum class Layer : uint8_t { kBase, kConfig, kModel, kEnvironment, kCommandLine };
  struct Entry {
    Yaml value;
    Layer layer = Layer::kBase;
    std::string origin;
    bool of_model = false;  // the model's file has the same value
  };

  Settings();
  void Put(const KeyInfo& key, Yaml value, Layer layer, std::string origin);
  void PutConfig(const Yaml& file);
  void PutModel();
  const Entry& EntryOf(std::string_view key) const;

  std::shared_ptr<const KeyTable> table_;
  std::map<std::string, Entry, std::less<>> entries_;
  std::string config_name_ = "base.yml";
};

}  // namespace octavo
