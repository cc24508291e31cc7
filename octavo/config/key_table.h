// Every key that exists: type, default, what it is for, whether it does anything here. Read from base.yml and keys.yml;
// nothing is repeated in code. Used by Settings, by `octavo config explain` and by shell completion.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/config/yaml.h"

namespace octavo {

enum class KeyType : uint8_t { kBool, kWhole, kNumber, kText, kList, kMap, kAny };

// What a value does on a CPU: something; nothing, by nature; nothing, because Octavo does not do it (so any value but
// the default is refused by the jobs).
enum class KeyEffect : uint8_t { kUsed, kNone, kUnsupported };

struct KeyInfo {
  std::string name;
  KeyType type = KeyType::kAny;
  bool nullable = false;
  KeyEffect effect = KeyEffect::kUsed;
  Yaml fallback;                     // the default, in its canonical form
  std::string heading;               // "Data"
  std::string about;                 // the comment of the key; the heading's when it has none
  std::vector<std::string> choices;  // empty: anything of the type
};

// "a whole number", "true or false", …, with "or None" and the choices.
std::string Expected(const KeyInfo& key);

class KeyTable {
 public:
  static KeyTable BuiltIn();

  const std::vector<KeyInfo>& keys() const { return keys_; }  // in the order of base.yml
  const KeyInfo* Find(std::string_view name) const;
  // Throws `unknown key 'x' WHERE` with the nearest names when there is no such key.
  const KeyInfo& At(std::string_view name, std::string_view where) const;

 private:
  std::vector<KeyInfo> keys_;
  std::map<std::string, size_t, std::less<>> index_;
};

}  // namespace octavo
