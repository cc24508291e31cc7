// What the filters over sequences share: looking up an attribute path in each item, comparing without case, sorting.
#pragma once

#include <functional>
#include <vector>

#include "octavo/text/template_interpreter.h"

namespace octavo::text::jinja {

// Looks up "a.b.0" in an item; no path gives the item itself.
class AttributePath {
 public:
  AttributePath(Interpreter& interpreter, const Value& attribute, const Value& otherwise = Value());
  Value Get(Interpreter& interpreter, Value item) const;

 private:
  std::vector<Value> parts_;
  Value otherwise_;  // in place of an undefined part, unless kMissing or none
};

// Lower case of strings, other values as they are.
Value IgnoreCase(Interpreter& interpreter, const Value& value);

// Stable; `less` may fail. Never reads outside, whatever `less` answers.
void StableSort(std::vector<size_t>* order, const std::function<bool(size_t, size_t)>& less);

// Items in the order of their keys.
std::vector<Value> SortByKeys(Interpreter& interpreter, const std::vector<Value>& items, const std::vector<Value>& keys,
                              bool reverse);

}  // namespace octavo::text::jinja
