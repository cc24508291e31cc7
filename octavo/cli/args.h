// The command line of one verb: `key=value`, `--key=value`, `--key value`, `--switch` and positionals. A verb declares
// its options in a table; the same table makes the help page and the errors. Used by the verbs only.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace octavo {

struct OptionSpec {
  std::string_view name;   // "max_tokens"; --max-tokens means the same
  std::string_view value;  // "N", "FILE", …; empty for a switch
  std::string_view help;
};

class Args;

struct VerbSpec {
  std::string_view name;
  std::string_view synopsis;  // what follows the name: "DIR [--verbose]"
  std::string_view summary;   // one line
  std::string_view details;   // paragraphs and examples for --help
  int least_positionals = 0;
  int most_positionals = 0;
  std::vector<OptionSpec> options = {};
  int (*run)(const Args&) = nullptr;
  bool takes_settings = false;  // words that are no options are keys of the config: Args::settings()
};

// Options that every verb has.
std::span<const OptionSpec> CommonOptions();

class Args {
 public:
  // Throws a usage Error for an unknown option (with the nearest names), a missing value, a repeated key or a wrong
  // number of positionals.
  static Args Parse(const VerbSpec& verb, std::span<const std::string_view> words);

  const std::vector<std::string>& positionals() const { return positionals_; }
  // The words that set keys of the config, as config/settings.h takes them. Only for verbs that take settings.
  const std::vector<std::string>& settings() const { return settings_; }
  bool Has(std::string_view name) const { return values_.contains(std::string(name)); }
  bool Switch(std::string_view name) const;  // --x, x=true, x=false
  std::string Text(std::string_view name, std::string_view otherwise) const;
  int64_t Int(std::string_view name, int64_t otherwise, int64_t least, int64_t most) const;
  int Threads() const;  // --threads, else OCTAVO_THREADS, else the machine's

 private:
  std::vector<std::string> positionals_, settings_;
  std::map<std::string, std::string> values_;
};

// The page that `octavo VERB --help` prints.
std::string HelpPage(const VerbSpec& verb);

}  // namespace octavo
