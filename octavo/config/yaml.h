// YAML read strictly: a plain tree with line numbers. Duplicate keys, anchors, aliases and tags are errors; depth and
// size are bounded before anything is built. Used for configs, rules and recipes. Writes values back on one line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace octavo {

class Yaml {
 public:
  enum class Kind : uint8_t { kNull, kScalar, kList, kMap };

  // `source` names the text in errors ("my_rules.yml"). Empty text is null. One document only.
  static Yaml Parse(std::string_view text, std::string_view source);

  // Values that come from elsewhere than a text of YAML: `source` is what Where() says.
  static Yaml Null(std::string_view source);
  static Yaml Scalar(std::string_view text, bool quoted, std::string_view source);
  static Yaml List(std::vector<Yaml> items, std::string_view source);

  Kind kind() const { return kind_; }
  bool is_null() const { return kind_ == Kind::kNull; }
  int line() const { return line_; }  // from 1
  const std::vector<Yaml>& items() const { return items_; }
  const std::vector<std::pair<std::string, Yaml>>& fields() const { return fields_; }
  const Yaml* Find(std::string_view key) const;  // null when absent or not a map

  // Scalars. Each throws a usage Error with source and line when the value is something else. `what` names it in the
  // error. Values are MaxText's: None and null are null; 1_000 is 1000; quoted text is text.
  std::string Text(std::string_view what) const;
  int64_t Int(std::string_view what) const;
  double Number(std::string_view what) const;
  bool Bool(std::string_view what) const;
  bool quoted() const { return quoted_; }

  // The value on one line, such that Parse gives it back: {a: [1, 'x y']}. Equal values have equal lines.
  std::string Flow() const;

  const std::string& Source() const { return source_; }
  // "rules.yml:12"; the bare source for values that come from elsewhere
  std::string Where() const;

 private:
  friend class YamlBuilder;
  [[noreturn]] void ThrowExpected(std::string_view what, std::string_view expected) const;

  Kind kind_ = Kind::kNull;
  std::string scalar_;
  bool quoted_ = false;
  std::vector<Yaml> items_;
  std::vector<std::pair<std::string, Yaml>> fields_;
  int line_ = 1;
  std::string source_;
};

}  // namespace octavo
