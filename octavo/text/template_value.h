// The values a template computes with: Python's None, bool, int, float, str, list, tuple, dict, and the few objects
// that Jinja adds. Callers build inputs with the makers below or from JSON (template_json.h); the engine does the rest.
// Everything that JSON can express is immutable and cheap to copy; depth and weight are known without walking, so that
// the engine can refuse before it recurses. Not here: comparing (template_compare.h), printing (template_repr.h).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "octavo/text/template_text.h"

namespace octavo::text::jinja {

class Value;
class DictObject;
struct ListObject;

enum class Kind : uint8_t {
  kMissing,    // no value at all: an unset variable, an argument that was not given; never seen by a template
  kUndefined,  // Jinja's Undefined
  kNone,
  kBool,
  kInt,
  kFloat,
  kBigInt,  // an integer of the input beyond 64 bits: prints exactly, computes not
  kString,
  kList,
  kTuple,
  kDict,
  kRange,
  kView,      // dict.keys(), .values(), .items()
  kIterator,  // what filters like map and select give: readable once
  kNamespace,
  kLoop,
  kMacro,
  kFunction,  // built-in function or bound method
  kCycler,
  kJoiner,
};

// Base of everything behind a pointer. `depth` counts nesting, `weight` the values inside (a shared one counts again).
struct Object {
  virtual ~Object() = default;
  int32_t depth = 1;
  uint64_t weight = 1;
};

// Containers nested deeper than this cannot be made: all recursions over values stay shallow.
inline constexpr int kMaxValueDepth = 200;

class Value {
 public:
  Value() = default;

  static Value None() { return Value(Kind::kNone); }
  static Value Bool(bool value);
  static Value Int(int64_t value);
  static Value Float(double value);
  static Value BigInt(std::string digits);
  static Value String(Text text);
  static Value String(std::string_view text, Marks marks = kFromTemplate);
  // These throw Error when the result would be nested deeper than kMaxValueDepth.
  static Value List(std::vector<Value> items);
  static Value Tuple(std::vector<Value> items);
  static Value Dict(std::shared_ptr<DictObject> dict);
  // Undefined because nothing has this name.
  static Value Undefined(std::string_view name);
  static Value FromObject(Kind kind, std::shared_ptr<Object> object);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool missing() const { return kind_ == Kind::kMissing; }
  bool undefined() const { return kind_ == Kind::kUndefined; }
  bool none() const { return kind_ == Kind::kNone; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_sequence() const { return kind_ == Kind::kList || kind_ == Kind::kTuple; }
  // int or bool, which is an int in Python.
  bool is_integral() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }
  bool is_number() const { return is_integral() || kind_ == Kind::kFloat; }

  bool boolean() const { return integer_ != 0; }
  int64_t integer() const { return integer_; }  // kInt and kBool
  double real() const { return kind_ == Kind::kFloat ? float_ : static_cast<double>(integer_); }
  const Text& text() const;                 // kString
  std::string_view str() const;             // kString, kBigInt
  const std::vector<Value>& items() const;  // kList, kTuple
  const DictObject& dict() const;           // kDict

  template <typename T>
  T& object() const {
    return static_cast<T&>(*object_);
  }
  const std::shared_ptr<Object>& shared() const { return object_; }
  int depth() const { return object_ ? object_->depth : 0; }
  uint64_t weight() const { return object_ ? object_->weight : 1; }

 private:
  explicit Value(Kind kind) : kind_(kind) {}

  Kind kind_ = Kind::kMissing;
  union {
    int64_t integer_ = 0;
    double float_;
  };
  std::shared_ptr<Object> object_;
};

struct StringObject : Object {
  explicit StringObject(Text value);
  Text text;
};

struct ListObject : Object {
  std::vector<Value> items;
  bool group = false;  // the (grouper, list) pair of groupby, whose parts have names
};

// A dict that keeps the order of insertion. Keys are any hashable values; equal keys are one (1 and 1.0 and True).
class DictObject : public Object {
 public:
  using Entry = std::pair<Value, Value>;

  const std::vector<Entry>& entries() const { return entries_; }
  size_t size() const { return entries_.size(); }
  const Value* Find(const Value& key) const;
  const Value* Find(std::string_view key) const;
  // Adds, or replaces in place. The key must be hashable. Throws like Value::List.
  void Set(Value key, Value value);
  void Set(std::string_view key, Value value);

 private:
  struct KeyLess {
    using is_transparent = void;
    bool operator()(const Value& a, const Value& b) const;
    bool operator()(const Value& a, std::string_view b) const;
    bool operator()(std::string_view a, const Value& b) const;
  };
  template <typename Key>
  size_t IndexOf(const Key& key) const;

  std::vector<Entry> entries_;
  std::map<Value, size_t, KeyLess> index_;  // only beyond a handful of entries; a tree: no collisions to provoke
};

struct UndefinedObject : Object {
  std::string hint;         // the whole message, when it is known
  std::string object_type;  // what has no such attribute or element; empty: a name
  Value name;               // string: attribute, else element
  bool security = false;    // using it is a SecurityError
};

struct RangeObject : Object {
  int64_t start = 0, stop = 0, step = 1;
  int64_t size() const;
  int64_t at(int64_t index) const { return start + index * step; }
};

struct ViewObject : Object {
  enum class Part { kKeys, kValues, kItems };
  Value dict;
  Part part = Part::kKeys;
  Value at(size_t index) const;
};

// Attributes of namespace(); the only thing a template can write to. The interpreter owns the cycles it may form.
struct NamespaceObject : Object {
  DictObject attributes;
};

struct CyclerObject : Object {
  std::vector<Value> items;
  size_t position = 0;
};

struct JoinerObject : Object {
  Value separator;
  bool used = false;
};

// Raises depth and weight of `object` by a member it will hold. Throws Error beyond kMaxValueDepth.
void Contain(Object* object, const Value& member);

}  // namespace octavo::text::jinja
