#include "octavo/text/template_compare.h"

#include <fmt/format.h>

#include <cmath>

#include "octavo/text/template_repr.h"
#include "octavo/text/template_unicode.h"

namespace octavo::text::jinja {
namespace {

// Exact order of an int and a double, without the rounding of a conversion. Not for NaN.
int CompareIntFloat(int64_t a, double b) {
  if (b >= 9223372036854775808.0) return -1;
  if (b < -9223372036854775808.0) return 1;
  const int64_t whole = static_cast<int64_t>(b);
  if (a != whole) return a < whole ? -1 : 1;
  const double fraction = b - static_cast<double>(whole);
  return fraction > 0 ? -1 : fraction < 0 ? 1 : 0;
}

// <0, 0, >0, or 2 when one is NaN.
constexpr int kUnordered = 2;
int CompareNumbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return a.integer() < b.integer() ? -1 : a.integer() > b.integer() ? 1 : 0;
  if ((a.is(Kind::kFloat) && std::isnan(a.real())) || (b.is(Kind::kFloat) && std::isnan(b.real()))) return kUnordered;
  if (a.is_integral()) return CompareIntFloat(a.integer(), b.real());
  if (b.is_integral()) return -CompareIntFloat(b.integer(), a.real());
  return a.real() < b.real() ? -1 : a.real() > b.real() ? 1 : 0;
}

bool EqualDicts(const DictObject& a, const DictObject& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [key, value] : a.entries()) {
    const Value* other = b.Find(key);
    if (other == nullptr || !Equal(value, *other)) return false;
  }
  return true;
}

bool EqualRanges(const RangeObject& a, const RangeObject& b) {
  const int64_t size = a.size();
  if (size != b.size()) return false;
  return size == 0 || (a.start == b.start && (size == 1 || a.step == b.step));
}

bool EqualItems(const std::vector<Value>& a, const std::vector<Value>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (!Equal(a[i], b[i])) return false;
  return true;
}

// Keys and items compare as sets, values by identity.
bool EqualViews(const Value& a, const Value& b) {
  const auto &x = a.object<ViewObject>(), &y = b.object<ViewObject>();
  if (&x == &y) return true;
  if (x.part != y.part || x.part == ViewObject::Part::kValues) return false;
  if (x.part == ViewObject::Part::kItems) return EqualDicts(x.dict.dict(), y.dict.dict());
  if (x.dict.dict().size() != y.dict.dict().size()) return false;
  for (const auto& [key, value] : x.dict.dict().entries())
    if (y.dict.dict().Find(key) == nullptr) return false;
  return true;
}

// Classes of keys that can be equal to each other.
int KeyClass(const Value& value) {
  switch (value.kind()) {
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
      return 0;
    case Kind::kString:
      return 1;
    default:
      return 2 + static_cast<int>(value.kind());
  }
}

int KeyOrderOfNumbers(const Value& a, const Value& b) {
  const int order = CompareNumbers(a, b);
  if (order != kUnordered) return order;
  // NaN last. Python tells NaN objects apart; here they are one key.
  const auto nan = [](const Value& v) { return v.is(Kind::kFloat) && std::isnan(v.real()); };
  return static_cast<int>(nan(a)) - static_cast<int>(nan(b));
}

}  // namespace

bool IsTrue(const Value& value) {
  switch (value.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.integer() != 0;
    case Kind::kFloat:
      return value.real() != 0;
    case Kind::kString:
      return !value.text().empty();
    case Kind::kList:
    case Kind::kTuple:
      return !value.items().empty();
    case Kind::kDict:
      return value.dict().size() != 0;
    case Kind::kRange:
      return value.object<RangeObject>().size() != 0;
    case Kind::kView:
      return value.object<ViewObject>().dict.dict().size() != 0;
    default:
      return true;
  }
}

bool Identical(const Value& a, const Value& b) {
  if (a.kind() != b.kind()) return false;
  if (a.shared() || b.shared()) return a.shared() == b.shared();
  if (a.is(Kind::kFloat)) return false;  // Python makes a new object for each result
  return a.integer() == b.integer();
}

bool Equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return CompareNumbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kString:
    case Kind::kBigInt:
      return a.str() == b.str();
    case Kind::kList:
    case Kind::kTuple:
      return a.shared() == b.shared() || EqualItems(a.items(), b.items());
    case Kind::kDict:
      return a.shared() == b.shared() || EqualDicts(a.dict(), b.dict());
    case Kind::kRange:
      return EqualRanges(a.object<RangeObject>(), b.object<RangeObject>());
    case Kind::kView:
      return EqualViews(a, b);
    case Kind::kNone:
    case Kind::kUndefined:
      return true;
    default:
      return a.shared() == b.shared();
  }
}

LessResult Less(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return {CompareNumbers(a, b) == -1, "", {}};
  if (a.is_string() && b.is_string()) return {a.str() < b.str(), "", {}};  // order of UTF-8 is order of code points
  if (a.is_sequence() && a.kind() == b.kind()) {
    const std::vector<Value>&x = a.items(), &y = b.items();
    for (size_t i = 0; i < x.size() && i < y.size(); ++i)
      if (!Equal(x[i], y[i])) return Less(x[i], y[i]);
    return {x.size() < y.size(), "", {}};
  }
  if (a.undefined() || b.undefined()) return {false, "", a.undefined() ? a : b};
  return {false, fmt::format("'{}' and '{}'", TypeName(a), TypeName(b)), {}};
}

int KeyOrder(const Value& a, const Value& b) {
  const int class_a = KeyClass(a), class_b = KeyClass(b);
  if (class_a != class_b) return class_a < class_b ? -1 : 1;
  switch (a.kind()) {
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
      return KeyOrderOfNumbers(a, b);
    case Kind::kString:
    case Kind::kBigInt:
      return a.str().compare(b.str());
    case Kind::kTuple: {
      const std::vector<Value>&x = a.items(), &y = b.items();
      for (size_t i = 0; i < x.size() && i < y.size(); ++i)
        if (const int order = KeyOrder(x[i], y[i]); order != 0) return order;
      return x.size() < y.size() ? -1 : x.size() > y.size() ? 1 : 0;
    }
    case Kind::kNone:
    case Kind::kUndefined:
      return 0;
    default:
      return a.shared().get() < b.shared().get() ? -1 : a.shared().get() > b.shared().get() ? 1 : 0;
  }
}

int KeyOrder(const Value& a, std::string_view b) {
  const int class_a = KeyClass(a);
  if (class_a != 1) return class_a < 1 ? -1 : 1;
  return a.str().compare(b);
}

std::string_view Unhashable(const Value& value) {
  switch (value.kind()) {
    case Kind::kList:
    case Kind::kDict:
    case Kind::kView:
      return TypeName(value);
    case Kind::kTuple:
      for (const Value& item : value.items())
        if (const std::string_view inner = Unhashable(item); !inner.empty()) return inner;
      return "";
    default:
      return "";
  }
}

std::optional<int64_t> Length(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return static_cast<int64_t>(CountChars(value.str()));
    case Kind::kList:
    case Kind::kTuple:
      return static_cast<int64_t>(value.items().size());
    case Kind::kDict:
      return static_cast<int64_t>(value.dict().size());
    case Kind::kRange:
      return value.object<RangeObject>().size();
    case Kind::kView:
      return static_cast<int64_t>(value.object<ViewObject>().dict.dict().size());
    default:
      return std::nullopt;
  }
}

bool IsCallable(const Value& value) {
  switch (value.kind()) {
    case Kind::kMacro:
    case Kind::kFunction:
    case Kind::kLoop:
    case Kind::kJoiner:
    case Kind::kUndefined:  // the class has __call__
      return true;
    default:
      return false;
  }
}

std::string_view TypeName(const Value& value) {
  switch (value.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
    case Kind::kBigInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return value.text().markup() ? "Markup" : "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return value.object<ListObject>().group ? "_GroupTuple" : "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kRange:
      return "range";
    case Kind::kView:
      switch (value.object<ViewObject>().part) {
        case ViewObject::Part::kKeys:
          return "dict_keys";
        case ViewObject::Part::kValues:
          return "dict_values";
        case ViewObject::Part::kItems:
          return "dict_items";
      }
      return "dict_items";
    case Kind::kIterator:
      return "generator";
    case Kind::kNamespace:
      return "TemplateNamespace";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kMacro:
      return "Macro";
    case Kind::kFunction:
      return "builtin_function_or_method";
    case Kind::kCycler:
      return "Cycler";
    case Kind::kJoiner:
      return "Joiner";
  }
  return "object";
}

std::string ObjectTypeName(const Value& value) {
  if (value.none()) return "None";
  std::string_view module;
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kLoop:
    case Kind::kMacro:
      module = "jinja2.runtime.";
      break;
    case Kind::kCycler:
    case Kind::kJoiner:
      module = "jinja2.utils.";
      break;
    case Kind::kNamespace:
      module = "transformers.utils.chat_template_utils.";
      break;
    case Kind::kTuple:
      if (value.object<ListObject>().group) module = "jinja2.filters.";
      break;
    case Kind::kString:
      if (value.text().markup()) module = "markupsafe.";
      break;
    default:
      break;
  }
  return fmt::format("{}{} object", module, TypeName(value));
}

std::string UndefinedMessage(const Value& undefined) {
  const auto& object = undefined.object<UndefinedObject>();
  if (!object.hint.empty()) return object.hint;
  const std::string name = Repr(object.name).bytes();
  if (object.object_type.empty()) return fmt::format("{} is undefined", name);
  if (!object.name.is_string()) return fmt::format("{} has no element {}", object.object_type, name);
  return fmt::format("'{}' has no attribute {}", object.object_type, name);
}

}  // namespace octavo::text::jinja
