// Filters that read a whole sequence: length, first, join, sort, sum and their like.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "octavo/text/template_compare.h"
#include "octavo/text/template_filters.h"
#include "octavo/text/template_methods.h"
#include "octavo/text/template_selection.h"
#include "octavo/text/template_unicode.h"

namespace octavo::text::jinja {

Value IgnoreCase(Interpreter& interpreter, const Value& value) {
  if (!value.is_string()) return value;
  interpreter.ChargeScan(value.text().size() * 4);
  return interpreter.NewString(ToLower(value.text()));
}

void StableSort(std::vector<size_t>* order, const std::function<bool(size_t, size_t)>& less) {
  std::vector<size_t> other(order->size());
  for (size_t width = 1; width < order->size(); width *= 2) {
    for (size_t begin = 0; begin < order->size(); begin += 2 * width) {
      const size_t middle = std::min(begin + width, order->size()), end = std::min(begin + 2 * width, order->size());
      size_t left = begin, right = middle;
      for (size_t to = begin; to < end; ++to) {
        const bool take_right = left >= middle || (right < end && less((*order)[right], (*order)[left]));
        other[to] = (*order)[take_right ? right++ : left++];
      }
    }
    order->swap(other);
  }
}

std::vector<Value> SortByKeys(Interpreter& interpreter, const std::vector<Value>& items, const std::vector<Value>& keys,
                              bool reverse) {
  std::vector<size_t> order(items.size());
  std::iota(order.begin(), order.end(), size_t{0});
  StableSort(&order, [&](size_t a, size_t b) {
    return reverse ? interpreter.LessThan(keys[b], keys[a]) : interpreter.LessThan(keys[a], keys[b]);
  });
  std::vector<Value> sorted;
  sorted.reserve(items.size());
  for (const size_t index : order) sorted.push_back(items[index]);
  return sorted;
}

namespace {

Value FilterLength(Interpreter& interpreter, const Value& value, Arguments& args) {
  Bind(interpreter, "len", args, {});
  return Value::Int(interpreter.LengthOf(value));
}

Value FilterList(Interpreter& interpreter, const Value& value, Arguments& args) {
  Bind(interpreter, "do_list", args, {});
  return interpreter.NewList(interpreter.ToItems(value));
}

Value FilterFirst(Interpreter& interpreter, const Value& value, Arguments& args) {
  Bind(interpreter, "do_first", args, {});
  Value item;
  if (interpreter.Iterate(value)->Next(interpreter, &item)) return item;
  return interpreter.NewUndefined("No first item, sequence was empty.");
}

bool IsReversible(const Value& value) {
  return value.is_string() || value.is_sequence() || value.is(Kind::kDict) || value.is(Kind::kRange) ||
         value.is(Kind::kView) || value.undefined();
}

Value FilterLast(Interpreter& interpreter, const Value& value, Arguments& args) {
  Bind(interpreter, "do_last", args, {});
  if (!IsReversible(value)) interpreter.FailType(fmt::format("'{}' object is not reversible", TypeName(value)));
  if (value.is_string() || value.is_sequence() || value.is(Kind::kRange)) {
    if (interpreter.LengthOf(value) > 0) return interpreter.GetItem(value, Value::Int(-1));
  } else if (!value.undefined()) {
    const std::vector<Value> items = interpreter.ToItems(value);
    if (!items.empty()) return items.back();
  }
  return interpreter.NewUndefined("No last item, sequence was empty.");
}

Value FilterReverse(Interpreter& interpreter, const Value& value, Arguments& args) {
  Bind(interpreter, "do_reverse", args, {});
  if (value.is_string()) return ApplySlice(interpreter, value, Value::None(), Value::None(), Value::Int(-1));
  if (!interpreter.CanIterate(value)) interpreter.Fail("FilterArgumentError", "argument must be iterable");
  std::vector<Value> items = interpreter.ToItems(value);
  std::reverse(items.begin(), items.end());
  const Value reversed = interpreter.NewList(std::move(items));
  return IsReversible(value) ? interpreter.NewIterator(interpreter.Iterate(reversed)) : reversed;
}

Value FilterJoin(Interpreter& interpreter, const Value& value, Arguments& args) {
  const std::vector<Value> given = Bind(interpreter, "do_join", args, {"d", "attribute"});
  const Text separator = given[0].missing() ? Text() : interpreter.ToText(given[0]);
  const AttributePath path(interpreter, given[1]);
  Text result;
  bool first = true;
  const IteratorPtr iterator = interpreter.Iterate(value);
  Value item;
  while (iterator->Next(interpreter, &item)) {
    if (!first) result.Append(separator);
    first = false;
    result.Append(interpreter.ToText(path.Get(interpreter, item)));
    interpreter.Charge(1 + separator.size() / 16);
    if (result.size() > interpreter.limits().output_bytes) interpreter.FailLimit("a joined string is too long");
  }
  return interpreter.NewString(std::move(result));
}

// "a,b.c": each item's key is the list of these attributes.
Value FilterSort(Interpreter& interpreter, const Value& value, Arguments& args) {
  const std::vector<Value> given = Bind(interpreter, "do_sort", args, {"reverse", "case_sensitive", "attribute"});
  std::vector<AttributePath> paths;
  if (given[2].is_string()) {
    interpreter.ChargeScan(given[2].text().size() * 16);
    for (const Text& one : Split(given[2].text(), ",", -1, Side::kLeft))
      paths.emplace_back(interpreter, Value::String(one));
  } else {
    paths.emplace_back(interpreter, given[2]);
  }
  const std::vector<Value> items = interpreter.ToItems(value);
  std::vector<Value> keys;
  for (const Value& item : items) {
    std::vector<Value> parts;
    for (const AttributePath& path : paths) {
      const Value part = path.Get(interpreter, item);
      parts.push_back(IsTrue(given[1]) ? part : IgnoreCase(interpreter, part));
    }
    keys.push_back(interpreter.NewList(std::move(parts)));
  }
  return interpreter.NewList(SortByKeys(interpreter, items, keys, IsTrue(given[0])));
}

Value FilterDictSort(Interpreter& interpreter, const Value& value, Arguments& args) {
  const std::vector<Value> given = Bind(interpreter, "do_dictsort", args, {"case_sensitive", "by", "reverse"});
  const std::string by = given[1].missing() ? "key" : interpreter.ToText(given[1]).bytes();
  if (by != "key" && by != "value")
    interpreter.Fail("FilterArgumentError", "You can only sort by either \"key\" or \"value\"");
  if (value.undefined()) interpreter.FailUndefined(value);
  if (!value.is(Kind::kDict))
    interpreter.Fail("AttributeError", fmt::format("'{}' object has no attribute 'items'", TypeName(value)));
  std::vector<Value> items, keys;
  for (const auto& [key, item] : value.dict().entries()) {
    items.push_back(interpreter.NewTuple({key, item}));
    const Value& chosen = by == "key" ? key : item;
    keys.push_back(IsTrue(given[0]) ? chosen : IgnoreCase(interpreter, chosen));
  }
  return interpreter.NewList(SortByKeys(interpreter, items, keys, IsTrue(given[2])));
}

template <bool largest>
Value FilterExtreme(Interpreter& interpreter, const Value& value, Arguments& args) {
  const std::vector<Value> given = Bind(interpreter, "do_max", args, {"case_sensitive", "attribute"});
  const AttributePath path(interpreter, given[1]);
  Value best, best_key, item;
  const IteratorPtr iterator = interpreter.Iterate(value);
  while (iterator->Next(interpreter, &item)) {
    Value key = path.Get(interpreter, item);
    if (!IsTrue(given[0])) key = IgnoreCase(interpreter, key);
    const bool better = best.missing() || interpreter.Compare(largest ? CompareOp::kGt : CompareOp::kLt, key, best_key);
    if (!better) continue;
    best = item;
    best_key = key;
  }
  return best.missing() ? interpreter.NewUndefined("No aggregated item, sequence was empty.") : best;
}

Value FilterSum(Interpreter& interpreter, const Value& value, Arguments& args) {
  const std::vector<Value> given = Bind(interpreter, "do_sum", args, {"attribute", "start"});
  Value sum = given[1].missing() ? Value::Int(0) : given[1];
  if (sum.is_string()) interpreter.FailType("sum() can't sum strings [use ''.join(seq) instead]");
  const AttributePath path(interpreter, given[0]);
  const IteratorPtr iterator = interpreter.Iterate(value);
  Value item;
  while (iterator->Next(interpreter, &item))
    sum = ApplyBinary(interpreter, BinaryOp::kAdd, sum, path.Get(interpreter, item));
  return sum;
}

Value FilterGroupBy(Interpreter& interpreter, const Value& value, Arguments& args) {
  const std::vector<Value> given = Bind(interpreter, "do_groupby", args, {"attribute", "default", "case_sensitive"}, 1);
  const AttributePath path(interpreter, given[0], given[1]);
  const bool exact = IsTrue(given[2]);
  const auto key_of = [&](const Value& item) {
    const Value key = path.Get(interpreter, item);
    return exact ? key : IgnoreCase(interpreter, key);
  };
  const std::vector<Value> items = interpreter.ToItems(value);
  std::vector<Value> keys;
  for (const Value& item : items) keys.push_back(key_of(item));
  const std::vector<Value> sorted = SortByKeys(interpreter, items, keys, false);
  std::vector<Value> groups;
  for (size_t begin = 0; begin < sorted.size();) {
    const Value key = key_of(sorted[begin]);
    size_t end = begin + 1;
    while (end < sorted.size() && interpreter.Equals(key_of(sorted[end]), key)) ++end;
    const Value members = interpreter.NewList(
        {sorted.begin() + static_cast<std::ptrdiff_t>(begin), sorted.begin() + static_cast<std::ptrdiff_t>(end)});
    // The key as the first member writes it.
    Value group = interpreter.NewTuple({path.Get(interpreter, sorted[begin]), members});
    group.object<ListObject>().group = true;
    groups.push_back(std::move(group));
    begin = end;
  }
  return interpreter.NewList(std::move(groups));
}

// Attributes only, never items.
Value FilterAttr(Interpreter& interpreter, const Value& value, Arguments& args) {
  const std::vector<Value> given = Bind(interpreter, "do_attr", args, {"name"}, 1);
  if (value.undefined()) interpreter.FailUndefined(value);
  const std::string name = interpreter.ToText(given[0]).bytes();
  bool unsafe = false;
  const Value found = FindAttribute(interpreter, value, name, &unsafe);
  if (!found.missing()) return found;
  if (unsafe) return interpreter.GetAttribute(value, name);
  auto undefined = std::make_shared<UndefinedObject>();
  undefined->name = Value::String(name);
  undefined->object_type = ObjectTypeName(value);
  return Value::FromObject(Kind::kUndefined, std::move(undefined));
}

constexpr FilterEntry kFilters[] = {
    {"attr", FilterAttr},       {"count", FilterLength},      {"dictsort", FilterDictSort},  {"first", FilterFirst},
    {"groupby", FilterGroupBy}, {"join", FilterJoin},         {"last", FilterLast},          {"length", FilterLength},
    {"list", FilterList},       {"max", FilterExtreme<true>}, {"min", FilterExtreme<false>}, {"reverse", FilterReverse},
    {"sort", FilterSort},       {"sum", FilterSum},
};

}  // namespace

std::span<const FilterEntry> SequenceFilters() { return kFilters; }

}  // namespace octavo::text::jinja
