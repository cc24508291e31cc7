// Filters that pick from sequences or map them: lazily, as Jinja's do, so that errors come when an item is read.
#include <fmt/format.h>

#include <memory>

#include "octavo/text/template_compare.h"
#include "octavo/text/template_filters.h"
#include "octavo/text/template_methods.h"
#include "octavo/text/template_selection.h"

namespace octavo::text::jinja {

AttributePath::AttributePath(Interpreter& interpreter, const Value& attribute, const Value& otherwise)
    : otherwise_(otherwise) {
  if (attribute.missing() || attribute.none()) return;
  if (!attribute.is_string()) {
    parts_.push_back(attribute);
    return;
  }
  interpreter.ChargeScan(attribute.text().size() * 16);
  for (const Text& part : Split(attribute.text(), ".", -1, Side::kLeft)) {
    const bool digits = !part.empty() && part.bytes().find_first_not_of("0123456789") == std::string::npos;
    parts_.push_back(digits && part.size() < 18 ? Value::Int(std::stoll(part.bytes())) : Value::String(part));
  }
}

Value AttributePath::Get(Interpreter& interpreter, Value item) const {
  for (const Value& part : parts_) {
    item = interpreter.GetItem(item, part);
    if (item.undefined() && !otherwise_.missing() && !otherwise_.none()) item = otherwise_;
  }
  return item;
}

namespace {

// The arguments of a lazy filter, for its iterator to hold.
Value HoldAll(const Value& value, const Arguments& args) {
  std::vector<Value> held = {value};
  held.insert(held.end(), args.positional.begin(), args.positional.end());
  for (const auto& [name, item] : args.named) held.push_back(item);
  return Value::Tuple(std::move(held));
}

using ItemFunction = std::function<Value(Interpreter&, const Value&)>;

ItemFunction PrepareMap(Interpreter& interpreter, const Arguments& args) {
  const auto named = [&args](std::string_view name) {
    for (const auto& [key, value] : args.named)
      if (key == name) return value;
    return Value();
  };
  if (args.positional.empty() && !named("attribute").missing()) {
    for (const auto& [key, value] : args.named)
      if (key != "attribute" && key != "default")
        interpreter.Fail("FilterArgumentError", fmt::format("Unexpected keyword argument '{}'", key));
    return [path = AttributePath(interpreter, named("attribute"), named("default"))](
               Interpreter& inner, const Value& item) { return path.Get(inner, item); };
  }
  if (args.positional.empty()) interpreter.Fail("FilterArgumentError", "map requires a filter argument");
  Arguments rest = args;
  const std::string name = interpreter.ToText(args.positional[0]).bytes();
  rest.positional.erase(rest.positional.begin());
  return [name, rest](Interpreter& inner, const Value& item) { return inner.CallFilter(name, item, rest); };
}

Value FilterMap(Interpreter& interpreter, const Value& value, Arguments& args) {
  struct State {
    IteratorPtr source;
    ItemFunction map;
  };
  auto state = std::make_shared<State>();
  return interpreter.NewIterator(
      MakeIterator(HoldAll(value, args), [value, args, state](Interpreter& inner, Value* item) {
        if (!state->source) {
          if (!IsTrue(value)) return false;
          state->map = PrepareMap(inner, args);
          state->source = inner.Iterate(value);
        }
        Value next;
        if (!state->source->Next(inner, &next)) return false;
        *item = state->map(inner, next);
        return true;
      }));
}

// select, reject and their attribute forms.
struct Selection {
  bool by_attribute;
  bool wanted;
};

using Predicate = std::function<bool(Interpreter&, const Value&)>;

Predicate PrepareSelect(Interpreter& interpreter, const Arguments& args, Selection selection) {
  size_t used = 0;
  Value attribute;
  if (selection.by_attribute) {
    if (args.positional.empty()) interpreter.Fail("FilterArgumentError", "Missing parameter for attribute name");
    attribute = args.positional[used++];
  }
  const AttributePath path(interpreter, attribute);
  const bool wanted = selection.wanted;
  if (args.positional.size() <= used)
    return [path, wanted](Interpreter& inner, const Value& item) { return IsTrue(path.Get(inner, item)) == wanted; };
  const std::string name = interpreter.ToText(args.positional[used++]).bytes();
  Arguments rest = args;
  rest.positional.erase(rest.positional.begin(), rest.positional.begin() + static_cast<std::ptrdiff_t>(used));
  return [path, wanted, name, rest](Interpreter& inner, const Value& item) {
    return inner.CallTest(name, path.Get(inner, item), rest) == wanted;
  };
}

template <bool by_attribute, bool wanted>
Value FilterSelect(Interpreter& interpreter, const Value& value, Arguments& args) {
  struct State {
    IteratorPtr source;
    Predicate accepts;
  };
  auto state = std::make_shared<State>();
  return interpreter.NewIterator(
      MakeIterator(HoldAll(value, args), [value, args, state](Interpreter& inner, Value* item) {
        if (!state->source) {
          if (!IsTrue(value)) return false;
          state->accepts = PrepareSelect(inner, args, {by_attribute, wanted});
          state->source = inner.Iterate(value);
        }
        while (state->source->Next(inner, item))
          if (state->accepts(inner, *item)) return true;
        return false;
      }));
}

Value FilterUnique(Interpreter& interpreter, const Value& value, Arguments& args) {
  const Value held = HoldAll(value, args);
  const std::vector<Value> given = Bind(interpreter, "do_unique", args, {"case_sensitive", "attribute"});
  struct State {
    IteratorPtr source;
    AttributePath path;
    DictObject seen;
  };
  auto state = std::make_shared<State>(State{nullptr, AttributePath(interpreter, given[1]), {}});
  const bool exact = IsTrue(given[0]);
  return interpreter.NewIterator(MakeIterator(held, [value, state, exact](Interpreter& inner, Value* item) {
    if (!state->source) state->source = inner.Iterate(value);
    while (state->source->Next(inner, item)) {
      Value key = state->path.Get(inner, *item);
      if (!exact) key = IgnoreCase(inner, key);
      if (inner.Lookup(state->seen, key) != nullptr) continue;
      state->seen.Set(key, Value::None());
      return true;
    }
    return false;
  }));
}

Value FilterItems(Interpreter& interpreter, const Value& value, Arguments& args) {
  Bind(interpreter, "do_items", args, {});
  return interpreter.NewIterator(MakeIterator(value, [value, at = size_t{0}](Interpreter& inner, Value* item) mutable {
    if (value.undefined()) return false;
    if (!value.is(Kind::kDict)) inner.FailType("Can only get item pairs from a mapping.");
    if (at >= value.dict().size()) return false;
    const auto& [key, entry] = value.dict().entries()[at++];
    *item = Value::Tuple({key, entry});
    return true;
  }));
}

Value FilterBatch(Interpreter& interpreter, const Value& value, Arguments& args) {
  const Value held = HoldAll(value, args);
  const std::vector<Value> given = Bind(interpreter, "do_batch", args, {"linecount", "fill_with"}, 1);
  auto source = std::make_shared<IteratorPtr>();
  return interpreter.NewIterator(
      MakeIterator(held, [value, source, count = given[0], fill = given[1]](Interpreter& inner, Value* item) {
        if (!*source) *source = inner.Iterate(value);
        std::vector<Value> row;
        Value next;
        const auto full = [&] { return inner.Equals(Value::Int(static_cast<int64_t>(row.size())), count); };
        while ((row.empty() || !full()) && (*source)->Next(inner, &next)) row.push_back(next);
        if (row.empty()) return false;
        if (!full() && !fill.missing() && !fill.none()) {
          const int64_t wanted = IntArgument(inner, count, 0);
          inner.ChargeItems(static_cast<size_t>(std::max<int64_t>(wanted, 0)));
          while (static_cast<int64_t>(row.size()) < wanted) row.push_back(fill);
        }
        *item = inner.NewList(std::move(row));
        return true;
      }));
}

Value FilterSlice(Interpreter& interpreter, const Value& value, Arguments& args) {
  const Value held = HoldAll(value, args);
  const std::vector<Value> given = Bind(interpreter, "do_slice", args, {"slices", "fill_with"}, 1);
  struct State {
    bool read = false;
    std::vector<Value> items;
    int64_t number = 0;
  };
  auto state = std::make_shared<State>();
  return interpreter.NewIterator(
      MakeIterator(held, [value, state, count = given[0], fill = given[1]](Interpreter& inner, Value* item) {
        if (!state->read) state->items = inner.ToItems(value);
        state->read = true;
        const int64_t slices = IntArgument(inner, count, 0);
        if (slices == 0) inner.Fail("ZeroDivisionError", "integer division or modulo by zero");
        if (state->number >= slices) return false;
        const int64_t size = static_cast<int64_t>(state->items.size());
        const int64_t each = size / slices, longer = size % slices;
        const int64_t begin = state->number * each + std::min(state->number, longer);
        const int64_t end = begin + each + (state->number < longer ? 1 : 0);
        std::vector<Value> part(state->items.begin() + begin, state->items.begin() + end);
        if (!fill.missing() && !fill.none() && state->number >= longer) part.push_back(fill);
        ++state->number;
        *item = inner.NewList(std::move(part));
        return true;
      }));
}

constexpr FilterEntry kFilters[] = {
    {"batch", FilterBatch},
    {"items", FilterItems},
    {"map", FilterMap},
    {"reject", FilterSelect<false, false>},
    {"rejectattr", FilterSelect<true, false>},
    {"select", FilterSelect<false, true>},
    {"selectattr", FilterSelect<true, true>},
    {"slice", FilterSlice},
    {"unique", FilterUnique},
};

}  // namespace

std::span<const FilterEntry> SelectionFilters() { return kFilters; }

}  // namespace octavo::text::jinja
