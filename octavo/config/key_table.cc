#include "octavo/config/key_table.h"

#include <set>

#include "octavo/base/check.h"
#include "octavo/base/error.h"
#include "octavo/base/nearest.h"
#include "octavo/config/built_in.h"
#include "octavo/config/key_value.h"

namespace octavo {
namespace {

// The type that a default suggests.
KeyType TypeOf(const Yaml& value) {
  if (value.kind() == Yaml::Kind::kList) return KeyType::kList;
  if (value.kind() == Yaml::Kind::kMap) return KeyType::kMap;
  if (value.is_null()) return KeyType::kAny;
  const std::string text = value.Text("");
  if (value.quoted()) return KeyType::kText;
  if (text == "true" || text == "false") return KeyType::kBool;
  if (text.find_first_not_of("+-0123456789") == std::string::npos) return KeyType::kWhole;
  return text.find_first_not_of("+-.e0123456789") == std::string::npos ? KeyType::kNumber : KeyType::kText;
}

// The comments of base.yml: headings `# ---- Data ----` with text below them, and a comment behind a key.
struct Comments {
  std::map<std::string, std::string, std::less<>> heading, about;
};

Comments ReadComments(std::string_view text) {
  Comments comments;
  std::string heading, heading_text;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.starts_with("# ---- ")) {
      heading = line.substr(7, line.find(" ----", 7) - 7);
      heading_text.clear();
    } else if (line.starts_with("# ")) {
      if (!heading_text.empty()) heading_text += ' ';
      heading_text += line.substr(2);
    } else if (line.empty()) {
      heading_text.clear();
    } else if (line[0] != ' ' && line[0] != '#') {
      const std::string key(line.substr(0, line.find(':')));
      const size_t comment = line.find("  # ");
      comments.heading[key] = heading;
      comments.about[key] = comment == std::string_view::npos ? heading_text : std::string(line.substr(comment + 4));
    }
  }
  return comments;
}

// keys.yml by key.
class Notes {
 public:
  explicit Notes(const Yaml& yaml) {
    for (const auto& [name, value] : yaml.fields()) {
      if (name == "choices") {
        for (const auto& [key, words] : value.fields()) {
          for (const Yaml& word : words.items()) choices_[key].push_back(word.Text(key));
        }
      } else {
        for (const Yaml& key : value.items()) lists_[name].insert(key.Text(name));
      }
    }
  }
  bool Has(const std::string& list, const std::string& key) const {
    const auto at = lists_.find(list);
    return at != lists_.end() && at->second.contains(key);
  }
  void Apply(KeyInfo& key) const {
    constexpr std::pair<const char*, KeyType> kTypes[] = {
        {"whole", KeyType::kWhole}, {"number", KeyType::kNumber}, {"bool", KeyType::kBool},
        {"text", KeyType::kText},   {"list", KeyType::kList},     {"any", KeyType::kAny},
    };
    for (const auto& [name, type] : kTypes) {
      if (Has(name, key.name)) key.type = type;
      if (Has(std::string(name) + "_or_none", key.name)) {
        key.type = type;
        key.nullable = true;
      }
    }
    if (Has("no_effect", key.name)) key.effect = KeyEffect::kNone;
    if (Has("unsupported", key.name)) key.effect = KeyEffect::kUnsupported;
    const auto at = choices_.find(key.name);
    if (at != choices_.end()) key.choices = at->second;
  }
  // A name in keys.yml that is no key would be a silent mistake.
  void CheckAll(const KeyTable& table) const {
    for (const auto& [list, names] : lists_) {
      for (const std::string& name : names) table.At(name, "in keys.yml");
    }
    for (const auto& [name, words] : choices_) table.At(name, "in keys.yml");
  }

 private:
  std::map<std::string, std::set<std::string>> lists_;
  std::map<std::string, std::vector<std::string>> choices_;
};

}  // namespace

std::string Expected(const KeyInfo& key) {
  std::string text;
  if (!key.choices.empty()) {
    std::vector<std::string> words;
    for (const std::string& word : key.choices) words.push_back(word.empty() ? "''" : word);
    text = fmt::format("one of {}", fmt::join(words, ", "));
  } else {
    switch (key.type) {
      case KeyType::kBool:
        text = "true or false";
        break;
      case KeyType::kWhole:
        text = "a whole number";
        break;
      case KeyType::kNumber:
        text = "a number";
        break;
      case KeyType::kText:
        text = "text";
        break;
      case KeyType::kList:
        text = "a list";
        break;
      case KeyType::kMap:
        text = "a map";
        break;
      case KeyType::kAny:
        text = "any value";
        break;
    }
  }
  return key.nullable ? text + " or None" : text;
}

KeyTable KeyTable::BuiltIn() {
  const std::optional<EmbeddedFile> base = FindBuiltInConfig("base.yml");
  OCTAVO_CHECK(base.has_value());
  const Yaml yaml = Yaml::Parse(base->text, "base.yml");
  const Comments comments = ReadComments(base->text);
  const Notes notes(Yaml::Parse(KeyTableText(), "keys.yml"));
  KeyTable table;
  for (const auto& [name, value] : yaml.fields()) {
    KeyInfo key;
    key.name = name;
    key.type = TypeOf(value);
    key.nullable = value.is_null();
    key.heading = comments.heading.at(name);
    key.about = comments.about.at(name);
    notes.Apply(key);
    key.fallback = Canonical(key, value);
    table.index_.emplace(name, table.keys_.size());
    table.keys_.push_back(std::move(key));
  }
  notes.CheckAll(table);
  return table;
}

const KeyInfo* KeyTable::Find(std::string_view name) const {
  const auto at = index_.find(name);
  return at == index_.end() ? nullptr : &keys_[at->second];
}

const KeyInfo& KeyTable::At(std::string_view name, std::string_view where) const {
  if (const KeyInfo* key = Find(name)) return *key;
  std::vector<std::string_view> known;
  for (const KeyInfo& key : keys_) known.push_back(key.name);
  const std::vector<std::string> nearest = NearestNames(name, known, 3);
  // One name is enough when it is a likely slip of the fingers; else the nearest three.
  const bool slip = EditDistance(name, nearest[0]) <= 2 && EditDistance(name, nearest[1]) > 2;
  throw Error(ErrorCode::kUsage, fmt::format("unknown key '{}' {}", name, where),
              slip ? fmt::format("did you mean '{}'? See octavo config explain {}", nearest[0], nearest[0])
                   : fmt::format("did you mean '{}', '{}' or '{}'? See octavo config explain {}", nearest[0],
                                 nearest[1], nearest[2], nearest[0]));
}

}  // namespace octavo
