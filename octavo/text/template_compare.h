// Truth, equality, order and type names of template values, as Python defines them. Costs nothing that is not bounded
// by the weight of the operands; callers charge their budget with it first.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "octavo/text/template_value.h"

namespace octavo::text::jinja {

bool IsTrue(const Value& value);
bool Equal(const Value& a, const Value& b);
// Whether a and b are one object, or the same singleton (`is sameas`).
bool Identical(const Value& a, const Value& b);

// a < b, or why there is no answer.
struct LessResult {
  bool less = false;
  std::string incomparable;  // types without an order, as "'str' and 'int'"
  Value undefined;           // an Undefined that was to be compared
};
LessResult Less(const Value& a, const Value& b);

// <0, 0, >0: a total order of hashable values in which equal keys are equal; the order itself means nothing.
int KeyOrder(const Value& a, const Value& b);
int KeyOrder(const Value& a, std::string_view b);

// Name of a type that cannot be a dict key, as 'list'; empty when `value` is hashable.
std::string_view Unhashable(const Value& value);

// len(); none when the value has no length.
std::optional<int64_t> Length(const Value& value);

bool IsCallable(const Value& value);

// type(value).__name__, and the longer form of Jinja's messages: "dict object", "None".
std::string_view TypeName(const Value& value);
std::string ObjectTypeName(const Value& value);

// What an Undefined says when it is used.
std::string UndefinedMessage(const Value& undefined);

}  // namespace octavo::text::jinja
