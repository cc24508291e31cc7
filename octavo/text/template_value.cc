#include "octavo/text/template_value.h"

#include <algorithm>

#include "octavo/base/error.h"
#include "octavo/text/template_compare.h"

namespace octavo::text::jinja {
namespace {

constexpr uint64_t kWeightLimit = uint64_t{1} << 40;  // beyond any budget; keeps sums from wrapping
constexpr size_t kIndexFrom = 9;                      // entries from which a dict keeps an index

Value MakeSequence(Kind kind, std::vector<Value> items) {
  auto object = std::make_shared<ListObject>();
  for (const Value& item : items) Contain(object.get(), item);
  object->items = std::move(items);
  return Value::FromObject(kind, std::move(object));
}

}  // namespace

void Contain(Object* object, const Value& member) {
  object->depth = std::max(object->depth, member.depth() + 1);
  object->weight = std::min(object->weight + member.weight(), kWeightLimit);
  if (object->depth > kMaxValueDepth) ThrowUsage("a value is nested deeper than {} levels", kMaxValueDepth);
}

Value Value::Bool(bool value) {
  Value result(Kind::kBool);
  result.integer_ = value ? 1 : 0;
  return result;
}

Value Value::Int(int64_t value) {
  Value result(Kind::kInt);
  result.integer_ = value;
  return result;
}

Value Value::Float(double value) {
  Value result(Kind::kFloat);
  result.float_ = value;
  return result;
}

Value Value::BigInt(std::string digits) {
  return FromObject(Kind::kBigInt, std::make_shared<StringObject>(Text(std::move(digits))));
}

Value Value::String(Text text) { return FromObject(Kind::kString, std::make_shared<StringObject>(std::move(text))); }

Value Value::String(std::string_view text, Marks marks) { return String(Text(std::string(text), marks)); }

Value Value::List(std::vector<Value> items) { return MakeSequence(Kind::kList, std::move(items)); }

Value Value::Tuple(std::vector<Value> items) { return MakeSequence(Kind::kTuple, std::move(items)); }

Value Value::Dict(std::shared_ptr<DictObject> dict) { return FromObject(Kind::kDict, std::move(dict)); }

Value Value::Undefined(std::string_view name) {
  auto object = std::make_shared<UndefinedObject>();
  object->name = String(name);
  return FromObject(Kind::kUndefined, std::move(object));
}

Value Value::FromObject(Kind kind, std::shared_ptr<Object> object) {
  Value result(kind);
  result.object_ = std::move(object);
  return result;
}

const Text& Value::text() const { return object<StringObject>().text; }
std::string_view Value::str() const { return object<StringObject>().text.bytes(); }
const std::vector<Value>& Value::items() const { return object<ListObject>().items; }
const DictObject& Value::dict() const { return object<DictObject>(); }

StringObject::StringObject(Text value) : text(std::move(value)) { weight = 1 + text.size() / 64; }

bool DictObject::KeyLess::operator()(const Value& a, const Value& b) const { return KeyOrder(a, b) < 0; }
bool DictObject::KeyLess::operator()(const Value& a, std::string_view b) const { return KeyOrder(a, b) < 0; }
bool DictObject::KeyLess::operator()(std::string_view a, const Value& b) const { return KeyOrder(b, a) > 0; }

template <typename Key>
size_t DictObject::IndexOf(const Key& key) const {
  if (index_.empty()) {
    const auto found = std::find_if(entries_.begin(), entries_.end(),
                                    [&key](const Entry& entry) { return KeyOrder(entry.first, key) == 0; });
    return static_cast<size_t>(found - entries_.begin());
  }
  const auto found = index_.find(key);
  return found == index_.end() ? entries_.size() : found->second;
}

const Value* DictObject::Find(const Value& key) const {
  const size_t index = IndexOf(key);
  return index == entries_.size() ? nullptr : &entries_[index].second;
}

const Value* DictObject::Find(std::string_view key) const {
  const size_t index = IndexOf(key);
  return index == entries_.size() ? nullptr : &entries_[index].second;
}

void DictObject::Set(Value key, Value value) {
  Contain(this, value);
  const size_t index = IndexOf(key);
  if (index < entries_.size()) {
    entries_[index].second = std::move(value);
    return;
  }
  Contain(this, key);
  entries_.emplace_back(std::move(key), std::move(value));
  if (!index_.empty()) {
    index_.emplace(entries_.back().first, index);
  } else if (entries_.size() == kIndexFrom) {
    for (size_t i = 0; i < entries_.size(); ++i) index_.emplace(entries_[i].first, i);
  }
}

void DictObject::Set(std::string_view key, Value value) { Set(Value::String(key), std::move(value)); }

int64_t RangeObject::size() const {
  // In 128 bits: the ends may lie 2^64 apart.
  const __int128 span = step > 0 ? static_cast<__int128>(stop) - start : static_cast<__int128>(start) - stop;
  if (span <= 0) return 0;
  const __int128 stride = step > 0 ? static_cast<__int128>(step) : -static_cast<__int128>(step);
  const __int128 count = (span + stride - 1) / stride;
  return static_cast<int64_t>(std::min<__int128>(count, INT64_MAX));
}

Value ViewObject::at(size_t index) const {
  const DictObject::Entry& entry = dict.dict().entries()[index];
  switch (part) {
    case Part::kKeys:
      return entry.first;
    case Part::kValues:
      return entry.second;
    case Part::kItems:
      break;
  }
  return Value::Tuple({entry.first, entry.second});
}

}  // namespace octavo::text::jinja
