// Attributes and methods of values, with the sandbox's rules: nothing that starts with an underscore, nothing that
// changes a list or a dict.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "octavo/text/template_compare.h"
#include "octavo/text/template_methods.h"
#include "octavo/text/template_repr.h"

namespace octavo::text::jinja {
namespace {

template <size_t N>
bool IsIn(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The names that every Python object has, and some have; all hidden.
constexpr std::array<std::string_view, 40> kInternals = {"__class__",
                                                         "__doc__",
                                                         "__init__",
                                                         "__new__",
                                                         "__repr__",
                                                         "__str__",
                                                         "__eq__",
                                                         "__ne__",
                                                         "__lt__",
                                                         "__le__",
                                                         "__gt__",
                                                         "__ge__",
                                                         "__hash__",
                                                         "__getattribute__",
                                                         "__setattr__",
                                                         "__delattr__",
                                                         "__dir__",
                                                         "__format__",
                                                         "__reduce__",
                                                         "__reduce_ex__",
                                                         "__sizeof__",
                                                         "__subclasshook__",
                                                         "__init_subclass__",
                                                         "__getstate__",
                                                         "__len__",
                                                         "__getitem__",
                                                         "__iter__",
                                                         "__contains__",
                                                         "__add__",
                                                         "__mul__",
                                                         "__rmul__",
                                                         "__mod__",
                                                         "__rmod__",
                                                         "__setitem__",
                                                         "__delitem__",
                                                         "__reversed__",
                                                         "__class_getitem__",
                                                         "__call__",
                                                         "__globals__",
                                                         "__dict__"};
constexpr std::array<std::string_view, 8> kListChanges = {"append", "clear", "pop",    "reverse",
                                                          "insert", "sort",  "extend", "remove"};
constexpr std::array<std::string_view, 5> kDictChanges = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::array<std::string_view, 3> kUnsupportedStr = {"encode", "maketrans", "translate"};

Value Bound(std::string_view name, NativeFunction function, const Value& self) {
  auto object = std::make_shared<FunctionObject>();
  object->name = name;
  object->call = function;
  Contain(object.get(), self);
  object->weight = 1;
  object->self = self;
  return Value::FromObject(Kind::kFunction, std::move(object));
}

template <size_t N>
Value FindMethod(const std::array<MethodEntry, N>& methods, std::string_view name, const Value& self) {
  for (const MethodEntry& entry : methods)
    if (entry.name == name) return Bound(entry.name, entry.function, self);
  return Value();
}

// Lists and tuples.

Value CallItemCount(Interpreter& interpreter, const Value& self, Arguments& args) {
  const std::vector<Value> given = Positional(interpreter, "count", args, 1, 1);
  int64_t count = 0;
  for (const Value& item : self.items()) count += interpreter.Equals(item, given[0]);
  return Value::Int(count);
}

Value CallItemIndex(Interpreter& interpreter, const Value& self, Arguments& args) {
  const std::vector<Value> given = Positional(interpreter, "index", args, 1, 3);
  const int64_t size = static_cast<int64_t>(self.items().size());
  const auto bound = [&](const Value& value, int64_t otherwise) {
    const int64_t index = IntArgument(interpreter, value, otherwise);
    return index < 0 ? std::max<int64_t>(index < -size ? 0 : index + size, 0) : index;
  };
  const int64_t stop = std::min(bound(given[2], size), size);
  for (int64_t i = bound(given[1], 0); i < stop; ++i)
    if (interpreter.Equals(self.items()[static_cast<size_t>(i)], given[0])) return Value::Int(i);
  interpreter.Charge(given[0].weight());
  interpreter.Fail("ValueError", self.is(Kind::kList) ? Repr(given[0]).bytes() + " is not in list"
                                                      : "tuple.index(x): x not in tuple");
}

Value CallListCopy(Interpreter& interpreter, const Value& self, Arguments& args) {
  Positional(interpreter, "copy", args, 0, 0);
  return interpreter.NewList(self.items());
}

constexpr std::array<MethodEntry, 3> kListMethods = {
    {{"copy", CallListCopy}, {"count", CallItemCount}, {"index", CallItemIndex}}};
constexpr std::array<MethodEntry, 2> kTupleMethods = {{{"count", CallItemCount}, {"index", CallItemIndex}}};

// Dicts.

Value CallGet(Interpreter& interpreter, const Value& self, Arguments& args) {
  const std::vector<Value> given = Positional(interpreter, "get", args, 1, 2);
  const Value* found = interpreter.Lookup(self.dict(), given[0]);
  return found != nullptr ? *found : given[1].missing() ? Value::None() : given[1];
}

template <ViewObject::Part part>
Value CallView(Interpreter& interpreter, const Value& self, Arguments& args) {
  Positional(interpreter, "items", args, 0, 0);
  auto view = std::make_shared<ViewObject>();
  Contain(view.get(), self);
  view->dict = self;
  view->part = part;
  return Value::FromObject(Kind::kView, std::move(view));
}

Value CallDictCopy(Interpreter& interpreter, const Value& self, Arguments& args) {
  Positional(interpreter, "copy", args, 0, 0);
  return self;
}

// dict.fromkeys(keys, value)
Value CallFromKeys(Interpreter& interpreter, const Value&, Arguments& args) {
  const std::vector<Value> given = Positional(interpreter, "fromkeys", args, 1, 2);
  auto dict = std::make_shared<DictObject>();
  for (const Value& key : interpreter.ToItems(given[0]))
    dict->Set(interpreter.CheckKey(key), given[1].missing() ? Value::None() : given[1]);
  return Value::Dict(std::move(dict));
}

constexpr std::array<MethodEntry, 6> kDictMethods = {{{"copy", CallDictCopy},
                                                      {"fromkeys", CallFromKeys},
                                                      {"get", CallGet},
                                                      {"items", CallView<ViewObject::Part::kItems>},
                                                      {"keys", CallView<ViewObject::Part::kKeys>},
                                                      {"values", CallView<ViewObject::Part::kValues>}}};

// Numbers.

Value CallBitLength(Interpreter& interpreter, const Value& self, Arguments& args) {
  Positional(interpreter, "bit_length", args, 0, 0);
  const int64_t value = self.integer();
  const uint64_t magnitude = value < 0 ? uint64_t{0} - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  return Value::Int(magnitude == 0 ? 0 : 64 - __builtin_clzll(magnitude));
}

Value CallIsInteger(Interpreter& interpreter, const Value& self, Arguments& args) {
  Positional(interpreter, "is_integer", args, 0, 0);
  return Value::Bool(std::isfinite(self.real()) && self.real() == std::floor(self.real()));
}

Value FindNumberAttribute(const Value& object, std::string_view name) {
  const bool whole = object.is_integral();
  if (name == "real" || (whole && name == "numerator")) return whole ? Value::Int(object.integer()) : object;
  if (name == "imag") return whole ? Value::Int(0) : Value::Float(0);
  if (whole && name == "denominator") return Value::Int(1);
  if (whole && name == "bit_length") return Bound("bit_length", CallBitLength, object);
  if (!whole && name == "is_integer") return Bound("is_integer", CallIsInteger, object);
  return Value();
}

// Loops.

Value CallCycle(Interpreter& interpreter, const Value& self, Arguments& args) {
  if (args.positional.empty()) interpreter.FailType("no items for cycling given");
  const auto index = static_cast<uint64_t>(self.object<LoopObject>().index0);
  return args.positional[index % args.positional.size()];
}

Value CallChanged(Interpreter& interpreter, const Value& self, Arguments& args) {
  auto& loop = self.object<LoopObject>();
  const Value given = interpreter.NewTuple(std::move(args.positional));
  if (!loop.last_changed.missing() && interpreter.Equals(loop.last_changed, given)) return Value::Bool(false);
  if (loop.last_changed.missing()) interpreter.Keep(std::static_pointer_cast<LoopObject>(self.shared()));
  loop.last_changed = given;
  return Value::Bool(true);
}

bool PeekLoop(Interpreter& interpreter, LoopObject& loop) {
  if (!loop.after.missing()) return true;
  Value item;
  if (!loop.iterator->Next(interpreter, &item)) return false;
  loop.after = std::move(item);
  return true;
}

Value FindLoopAttribute(Interpreter& interpreter, const Value& object, std::string_view name) {
  auto& loop = object.object<LoopObject>();
  if (name == "index0") return Value::Int(loop.index0);
  if (name == "index") return Value::Int(loop.index0 + 1);
  if (name == "first") return Value::Bool(loop.index0 == 0);
  if (name == "last") return Value::Bool(!PeekLoop(interpreter, loop));
  if (name == "length") return Value::Int(interpreter.LengthOf(object));
  if (name == "revindex") return Value::Int(interpreter.LengthOf(object) - loop.index0);
  if (name == "revindex0") return Value::Int(interpreter.LengthOf(object) - loop.index0 - 1);
  if (name == "depth0") return Value::Int(loop.depth0);
  if (name == "depth") return Value::Int(loop.depth0 + 1);
  if (name == "previtem") return loop.index0 == 0 ? interpreter.NewUndefined("there is no previous item") : loop.before;
  if (name == "nextitem")
    return PeekLoop(interpreter, loop) ? loop.after : interpreter.NewUndefined("there is no next item");
  if (name == "cycle") return Bound("cycle", CallCycle, object);
  if (name == "changed") return Bound("changed", CallChanged, object);
  return Value();
}

// The rest.

Value CallCyclerNext(Interpreter& interpreter, const Value& self, Arguments& args) {
  Positional(interpreter, "next", args, 0, 0);
  auto& cycler = self.object<CyclerObject>();
  const Value current = cycler.items[cycler.position];
  cycler.position = (cycler.position + 1) % cycler.items.size();
  return current;
}

Value CallCyclerReset(Interpreter& interpreter, const Value& self, Arguments& args) {
  Positional(interpreter, "reset", args, 0, 0);
  self.object<CyclerObject>().position = 0;
  return Value::None();
}

Value FindCyclerAttribute(const Value& object, std::string_view name) {
  const auto& cycler = object.object<CyclerObject>();
  if (name == "current") return cycler.items[cycler.position];
  if (name == "pos") return Value::Int(static_cast<int64_t>(cycler.position));
  if (name == "items") return Value::Tuple(cycler.items);
  if (name == "next") return Bound("next", CallCyclerNext, object);
  if (name == "reset") return Bound("reset", CallCyclerReset, object);
  return Value();
}

Value FindMacroAttribute(const Value& object, std::string_view name) {
  const Function& function = *object.object<MacroObject>().function;
  const auto& parameters = function.parameters;
  if (name == "name") return function.anonymous ? Value::None() : Value::String(function.name);
  if (name == "catch_kwargs") return Value::Bool(function.kwargs_slot >= 0);
  if (name == "catch_varargs") return Value::Bool(function.varargs_slot >= 0);
  if (name == "caller") return Value::Bool(function.caller_slot >= 0);
  if (name == "explicit_caller")
    return Value::Bool(std::find(parameters.begin(), parameters.end(), "caller") != parameters.end());
  if (name != "arguments") return Value();
  std::vector<Value> names;
  for (const std::string& parameter : parameters) names.push_back(Value::String(parameter));
  return Value::Tuple(std::move(names));
}

template <NativeFunction function>
Value CallOnItems(Interpreter& interpreter, const Value& self, Arguments& args) {
  return function(interpreter, interpreter.NewTuple(interpreter.ToItems(self)), args);
}

Value FindRangeAttribute(const Value& object, std::string_view name) {
  const auto& range = object.object<RangeObject>();
  if (name == "start") return Value::Int(range.start);
  if (name == "stop") return Value::Int(range.stop);
  if (name == "step") return Value::Int(range.step);
  if (name == "count") return Bound("count", CallOnItems<CallItemCount>, object);
  if (name == "index") return Bound("index", CallOnItems<CallItemIndex>, object);
  return Value();
}

Value FindStringAttribute(Interpreter& interpreter, const Value& object, std::string_view name) {
  if (const NativeFunction method = FindStringMethod(name)) return Bound("method", method, object);
  if (IsIn(kUnsupportedStr, name)) interpreter.FailUnsupported(fmt::format("method '{}' of 'str'", name));
  return Value();
}

bool IsHidden(const Value& object, std::string_view name) {
  if (name.starts_with('_')) return IsIn(kInternals, name);
  if (object.is(Kind::kList)) return IsIn(kListChanges, name);
  if (object.is(Kind::kDict)) return IsIn(kDictChanges, name);
  return false;
}

}  // namespace

Value FindAttribute(Interpreter& interpreter, const Value& object, std::string_view name, bool* unsafe) {
  *unsafe = IsHidden(object, name);
  if (*unsafe) return Value();
  switch (object.kind()) {
    case Kind::kString:
      return FindStringAttribute(interpreter, object, name);
    case Kind::kDict:
      return FindMethod(kDictMethods, name, object);
    case Kind::kList:
      return FindMethod(kListMethods, name, object);
    case Kind::kTuple:
      if (object.object<ListObject>().group) {
        if (name == "grouper") return object.items()[0];
        if (name == "list") return object.items()[1];
      }
      return FindMethod(kTupleMethods, name, object);
    case Kind::kNamespace: {
      const Value* found = object.object<NamespaceObject>().attributes.Find(name);
      return found == nullptr ? Value() : *found;
    }
    case Kind::kLoop:
      return FindLoopAttribute(interpreter, object, name);
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
      return FindNumberAttribute(object, name);
    case Kind::kMacro:
      return FindMacroAttribute(object, name);
    case Kind::kCycler:
      return FindCyclerAttribute(object, name);
    case Kind::kRange:
      return FindRangeAttribute(object, name);
    case Kind::kJoiner:
      if (name == "sep") return object.object<JoinerObject>().separator;
      if (name == "used") return Value::Bool(object.object<JoinerObject>().used);
      return Value();
    case Kind::kFunction:
      if (object.object<FunctionObject>().name == "dict" && name == "fromkeys")
        return Bound("fromkeys", CallFromKeys, object);
      return Value();
    default:
      return Value();
  }
}

}  // namespace octavo::text::jinja
