// The words of a command line as settings: which file, which keys. Knows the types of keys only to tell `--key value`
// from a bare `--key`. Used by Settings and, word by word, by the command line of verbs that take settings.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "octavo/config/key_table.h"

namespace octavo {

struct Assignment {
  std::string key, value;
};

struct SettingsWords {
  std::string config;  // the FILE.yml that came first; empty when there is none
  std::vector<Assignment> assignments;
};

// Throws a usage Error for an unknown key, a key that is given twice, and a word that is none of these.
SettingsWords ReadSettingsWords(const KeyTable& table, std::span<const std::string> words);

// How many words the setting at the front of `words` takes: 1 for key=value and --key=value, 2 for --key value, 0 when
// the first word is no setting.
int SettingLength(const KeyTable& table, std::span<const std::string> words);

}  // namespace octavo
