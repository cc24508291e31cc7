// Expressions: what a template computes, and the rules of subscripts and calls.
#include <fmt/format.h>

#include <algorithm>

#include "octavo/text/template_compare.h"
#include "octavo/text/template_filters.h"
#include "octavo/text/template_interpreter.h"
#include "octavo/text/template_repr.h"
#include "octavo/text/template_unicode.h"

namespace octavo::text::jinja {

Value Interpreter::Evaluate(const Expr& node) {
  Charge(1);
  switch (node.kind) {
    case ExprKind::kConst:
      return node.constant;
    case ExprKind::kName: {
      const Value& value = At(node.slot);
      return value.missing() ? Value::Undefined(node.name) : value;
    }
    case ExprKind::kTuple:
      return NewTuple(EvaluateParts(node));
    case ExprKind::kList:
      return NewList(EvaluateParts(node));
    case ExprKind::kDict:
      return EvaluateDict(node);
    case ExprKind::kCond:
      if (IsTrue(Evaluate(*node.parts[0]))) return Evaluate(*node.parts[1]);
      if (node.parts[2]) return Evaluate(*node.parts[2]);
      return NewUndefined(fmt::format(
          "the inline if-expression on line {} evaluated to false and no else section was defined.", node.place.line));
    case ExprKind::kOr: {
      Value left = Evaluate(*node.parts[0]);
      return IsTrue(left) ? left : Evaluate(*node.parts[1]);
    }
    case ExprKind::kAnd: {
      Value left = Evaluate(*node.parts[0]);
      return IsTrue(left) ? Evaluate(*node.parts[1]) : left;
    }
    case ExprKind::kNot:
      return Value::Bool(!IsTrue(Evaluate(*node.parts[0])));
    case ExprKind::kNegate:
    case ExprKind::kPlus: {
      const Value value = Evaluate(*node.parts[0]);
      place_ = &node.place;
      if (node.kind == ExprKind::kNegate) return ApplyNegate(*this, value);
      if (value.undefined()) FailUndefined(value);
      if (!value.is_number()) FailType(fmt::format("bad operand type for unary +: '{}'", TypeName(value)));
      return value.is(Kind::kBool) ? Value::Int(value.integer()) : value;
    }
    case ExprKind::kBinary:
      return EvaluateBinary(node);
    case ExprKind::kConcat:
      return EvaluateConcat(node);
    case ExprKind::kCompare:
      return EvaluateCompare(node);
    case ExprKind::kAttribute: {
      const Value object = Evaluate(*node.parts[0]);
      place_ = &node.place;
      return GetAttribute(object, node.name);
    }
    case ExprKind::kItem:
      return EvaluateItem(node);
    case ExprKind::kCall:
      return EvaluateCall(node, nullptr);
    case ExprKind::kFilter:
      return EvaluateFilter(node, nullptr);
    case ExprKind::kTest:
      return Value::Bool(EvaluateTest(node));
    case ExprKind::kAttributeTarget:
    case ExprKind::kSlice:
      break;
  }
  Fail("TemplateRuntimeError", "this expression has no value");
}

std::vector<Value> Interpreter::EvaluateParts(const Expr& node) {
  std::vector<Value> values;
  values.reserve(node.parts.size());
  for (const ExprPtr& part : node.parts) values.push_back(Evaluate(*part));
  return values;
}

Value Interpreter::EvaluateDict(const Expr& node) {
  auto dict = std::make_shared<DictObject>();
  for (size_t i = 0; i + 1 < node.parts.size(); i += 2) {
    const Value key = Evaluate(*node.parts[i]);
    const Value value = Evaluate(*node.parts[i + 1]);
    place_ = &node.place;
    dict->Set(CheckKey(key), value);
  }
  ChargeItems(dict->size());
  return Value::Dict(std::move(dict));
}

// a + b + c + d nests to the left; the chain is folded here so that strings grow in place.
Value Interpreter::EvaluateBinary(const Expr& node) {
  std::vector<const Expr*> chain;
  const Expr* first = &node;
  for (; first->kind == ExprKind::kBinary; first = first->parts[0].get()) chain.push_back(first);
  Value left = Evaluate(*first);
  Text sum;
  bool summing = false;
  for (auto it = chain.rbegin(); it != chain.rend(); ++it) {
    const Expr& step = **it;
    Charge(1);
    const Value right = Evaluate(*step.parts[1]);
    place_ = &step.place;
    const bool plain = step.binary == BinaryOp::kAdd && right.is_string() && !right.text().markup() &&
                       (summing || (left.is_string() && !left.text().markup()));
    if (plain) {
      if (!summing) sum = left.text();
      summing = true;
      Charge(right.text().size() / 16);
      if (sum.size() + right.text().size() > options_.limits.output_bytes)
        FailLimit(fmt::format("a string longer than {} bytes", options_.limits.output_bytes));
      sum.Append(right.text());
      continue;
    }
    if (summing) left = NewString(std::move(sum));
    summing = false;
    sum = Text();
    left = ApplyBinary(*this, step.binary, left, right);
  }
  return summing ? NewString(std::move(sum)) : left;
}

Value Interpreter::EvaluateConcat(const Expr& node) {
  Text joined;
  for (const ExprPtr& part : node.parts) {
    const Value value = Evaluate(*part);
    place_ = &node.place;
    joined.Append(ToText(value));
    if (joined.size() > options_.limits.output_bytes)
      FailLimit(fmt::format("a string longer than {} bytes", options_.limits.output_bytes));
  }
  return NewString(std::move(joined));
}

Value Interpreter::EvaluateCompare(const Expr& node) {
  Value left = Evaluate(*node.parts[0]);
  for (size_t i = 0; i < node.compare.size(); ++i) {
    Value right = Evaluate(*node.parts[i + 1]);
    place_ = &node.place;
    if (!Compare(node.compare[i], left, right)) return Value::Bool(false);
    left = std::move(right);
  }
  return Value::Bool(true);
}

bool Interpreter::Compare(CompareOp op, const Value& left, const Value& right) {
  switch (op) {
    case CompareOp::kEq:
      return Equals(left, right);
    case CompareOp::kNe:
      return !Equals(left, right);
    case CompareOp::kIn:
      return Contains(*this, right, left);
    case CompareOp::kNotIn:
      return !Contains(*this, right, left);
    case CompareOp::kLt:
      return LessThan(left, right, "<");
    case CompareOp::kGt:
      return CompareOrder(left, right, ">");
    case CompareOp::kLe:
      return CompareOrder(left, right, "<=");
    case CompareOp::kGe:
      return CompareOrder(left, right, ">=");
  }
  return false;
}

bool Interpreter::CompareOrder(const Value& left, const Value& right, std::string_view op) {
  Charge(std::min(left.weight(), right.weight()));
  const LessResult less = Less(left, right);
  if (!less.undefined.missing()) FailUndefined(less.undefined);
  if (!less.incomparable.empty()) {
    FailType(fmt::format("'{}' not supported between instances of '{}' and '{}'", op, TypeName(left), TypeName(right)));
  }
  const LessResult greater = Less(right, left);
  if (op == ">") return greater.less;
  // Neither less nor greater is equal, except for NaN.
  if (!less.less && !greater.less) return Equal(left, right);
  return op == "<=" ? less.less : greater.less;
}

Value Interpreter::EvaluateItem(const Expr& node) {
  const Value object = Evaluate(*node.parts[0]);
  const Expr& subscript = *node.parts[1];
  if (subscript.kind != ExprKind::kSlice) {
    const Value key = Evaluate(subscript);
    place_ = &node.place;
    return GetItem(object, key);
  }
  Value bounds[3];
  for (size_t i = 0; i < 3; ++i) bounds[i] = subscript.parts[i] ? Evaluate(*subscript.parts[i]) : Value::None();
  place_ = &node.place;
  return ApplySlice(*this, object, bounds[0], bounds[1], bounds[2]);
}

Arguments Interpreter::EvaluateArguments(const CallArgs& args) {
  Arguments result;
  result.positional.reserve(args.positional.size());
  for (const ExprPtr& part : args.positional) result.positional.push_back(Evaluate(*part));
  for (const auto& [name, part] : args.named) result.named.emplace_back(name, Evaluate(*part));
  if (args.star) {
    const Value value = Evaluate(*args.star);
    if (!CanIterate(value)) FailType(fmt::format("Value after * must be an iterable, not {}", TypeName(value)));
    for (Value& item : ToItems(value)) result.positional.push_back(std::move(item));
  }
  if (args.star_star) {
    const Value value = Evaluate(*args.star_star);
    if (!value.is(Kind::kDict)) FailType(fmt::format("argument after ** must be a mapping, not {}", TypeName(value)));
    for (const auto& [key, item] : value.dict().entries()) {
      if (!key.is_string()) FailType("keywords must be strings");
      const auto same = [&key = key](const auto& entry) { return entry.first == key.str(); };
      if (std::any_of(result.named.begin(), result.named.end(), same))
        FailType(fmt::format("got multiple values for keyword argument '{}'", key.str()));
      result.named.emplace_back(std::string(key.str()), item);
    }
  }
  return result;
}

Value Interpreter::EvaluateCall(const Expr& node, const Value* caller) {
  const Value callee = Evaluate(*node.parts[0]);
  Arguments args = EvaluateArguments(*node.args);
  if (caller != nullptr) args.named.emplace_back("caller", *caller);
  place_ = &node.place;
  return Call(callee, std::move(args));
}

Value Interpreter::EvaluateFilter(const Expr& node, const Value* block) {
  // The innermost filter of a filter block has no operand: the block is it.
  const Value value = !node.parts[0] ? *block
                      : node.parts[0]->kind == ExprKind::kFilter && block != nullptr
                          ? EvaluateFilter(*node.parts[0], block)
                          : Evaluate(*node.parts[0]);
  Arguments args = EvaluateArguments(*node.args);
  place_ = &node.place;
  Charge(4);
  if (node.filter == nullptr)
    Fail("TemplateRuntimeError", fmt::format("No filter named '{}' found.", node.name),
         fmt::format("filter '{}' is not supported", node.name));
  return node.filter(*this, value, args);
}

bool Interpreter::EvaluateTest(const Expr& node) {
  const Value value = Evaluate(*node.parts[0]);
  Arguments args = EvaluateArguments(*node.args);
  place_ = &node.place;
  Charge(2);
  if (node.test == nullptr)
    Fail("TemplateRuntimeError", fmt::format("No test named '{}' found.", node.name),
         fmt::format("test '{}' is not supported", node.name));
  return node.test(*this, value, args);
}

Value Interpreter::CallFilter(std::string_view name, const Value& value, Arguments args) {
  Charge(4);
  const FilterFunction filter = FindFilter(name);
  if (filter == nullptr)
    Fail("TemplateRuntimeError", fmt::format("No filter named {}.", ReprOf(name)),
         fmt::format("filter {} is not supported", ReprOf(name)));
  return filter(*this, value, args);
}

bool Interpreter::CallTest(std::string_view name, const Value& value, Arguments args) {
  Charge(2);
  const TestFunction test = FindTest(name);
  if (test == nullptr)
    Fail("TemplateRuntimeError", fmt::format("No test named {}.", ReprOf(name)),
         fmt::format("test {} is not supported", ReprOf(name)));
  return test(*this, value, args);
}

// Counts calls into the template for its lifetime.
class Interpreter::CallDepth {
 public:
  explicit CallDepth(Interpreter* interpreter) : interpreter_(interpreter) {
    if (interpreter->call_depth_ >= interpreter->options_.limits.depth)
      interpreter->FailLimit(
          fmt::format("macros call each other more than {} deep", interpreter->options_.limits.depth));
    ++interpreter->call_depth_;
  }
  ~CallDepth() { --interpreter_->call_depth_; }

 private:
  Interpreter* interpreter_;
};

Value Interpreter::Call(const Value& callee, Arguments args) {
  Charge(4);
  switch (callee.kind()) {
    case Kind::kFunction: {
      const auto& function = callee.object<FunctionObject>();
      return function.call(*this, function.self, args);
    }
    case Kind::kMacro: {
      const CallDepth depth(this);
      return CallMacro(callee.object<MacroObject>(), std::move(args));
    }
    case Kind::kLoop: {
      const CallDepth depth(this);
      return CallLoop(callee.object<LoopObject>(), std::move(args));
    }
    case Kind::kJoiner: {
      auto& joiner = callee.object<JoinerObject>();
      return std::exchange(joiner.used, true) ? joiner.separator : Value::String("");
    }
    case Kind::kUndefined:
      FailUndefined(callee);
    default:
      FailType(fmt::format("'{}' object is not callable", TypeName(callee)));
  }
}

void Interpreter::BindMacro(const MacroObject& macro, Arguments args, std::vector<Value>* slots) const {
  const Function& function = *macro.function;
  const std::string name = function.anonymous ? "None" : ReprOf(function.name);
  const auto take = [&args](std::string_view key) {
    const auto found =
        std::find_if(args.named.begin(), args.named.end(), [key](const auto& e) { return e.first == key; });
    if (found == args.named.end()) return Value();
    Value value = found->second;
    args.named.erase(found);
    return value;
  };
  const size_t count = function.parameters.size();
  for (size_t i = 0; i < count; ++i)
    (*slots)[static_cast<size_t>(function.parameter_slots[i])] =
        i < args.positional.size() ? args.positional[i] : take(function.parameters[i]);
  if (function.caller_slot >= 0) {
    Value caller = take("caller");
    if (caller.missing() || caller.none()) {
      auto undefined = std::make_shared<UndefinedObject>();
      undefined->hint = "No caller defined";
      undefined->name = Value::String("caller");
      caller = Value::FromObject(Kind::kUndefined, std::move(undefined));
    }
    (*slots)[static_cast<size_t>(function.caller_slot)] = caller;
  }
  if (function.kwargs_slot >= 0) {
    auto dict = std::make_shared<DictObject>();
    for (auto& [key, value] : args.named) dict->Set(key, std::move(value));
    (*slots)[static_cast<size_t>(function.kwargs_slot)] = Value::Dict(std::move(dict));
  } else if (!args.named.empty()) {
    if (!take("caller").missing())
      FailType(fmt::format(
          "macro {} was invoked with two values for the special caller argument. This is most likely a bug.", name));
    FailType(fmt::format("macro {} takes no keyword argument {}", name, ReprOf(args.named[0].first)));
  }
  if (function.varargs_slot >= 0) {
    std::vector<Value> rest;
    for (size_t i = count; i < args.positional.size(); ++i) rest.push_back(args.positional[i]);
    (*slots)[static_cast<size_t>(function.varargs_slot)] = Value::Tuple(std::move(rest));
  } else if (args.positional.size() > count) {
    FailType(fmt::format("macro {} takes not more than {} argument(s)", name, count));
  }
}

Value Interpreter::GetAttribute(const Value& object, std::string_view name) {
  if (object.undefined()) FailUndefined(object);
  bool unsafe = false;
  Value value = FindAttribute(*this, object, name, &unsafe);
  if (!unsafe && value.missing() && object.is(Kind::kDict)) {
    const Value* item = object.dict().Find(name);
    if (item != nullptr) return *item;
  }
  if (!value.missing()) return value;
  auto undefined = std::make_shared<UndefinedObject>();
  undefined->name = Value::String(name);
  if (unsafe) {
    undefined->security = true;
    undefined->hint = fmt::format("access to attribute {} of '{}' object is unsafe.", ReprOf(name), TypeName(object));
  } else {
    undefined->object_type = ObjectTypeName(object);
  }
  return Value::FromObject(Kind::kUndefined, std::move(undefined));
}

Value Interpreter::GetItem(const Value& object, const Value& key) {
  if (object.undefined()) FailUndefined(object);
  if (object.is(Kind::kDict)) {
    Charge(key.weight());
    if (Unhashable(key).empty())
      if (const Value* item = object.dict().Find(key)) return *item;
  } else if (key.is_integral()) {
    int64_t index = key.integer();
    const auto within = [&index](int64_t size) {
      if (index < 0) index += size;
      return index >= 0 && index < size;
    };
    if (object.is_sequence() && within(static_cast<int64_t>(object.items().size())))
      return object.items()[static_cast<size_t>(index)];
    if (object.is(Kind::kRange) && within(object.object<RangeObject>().size()))
      return Value::Int(object.object<RangeObject>().at(index));
    if (object.is_string() && within(LengthOf(object))) {
      const size_t begin = ByteOffset(object.str(), static_cast<size_t>(index));
      size_t end = begin;
      NextChar(object.str(), &end);
      Text text = object.text().Slice(begin, end);
      text.set_markup(object.text().markup());
      return NewString(std::move(text));
    }
  }
  if (key.is_string()) {
    bool unsafe = false;
    const Value value = FindAttribute(*this, object, key.str(), &unsafe);
    if (!value.missing()) return value;
    if (unsafe) return GetAttribute(object, key.str());
  }
  auto undefined = std::make_shared<UndefinedObject>();
  Contain(undefined.get(), key);
  undefined->name = key;
  undefined->object_type = ObjectTypeName(object);
  return Value::FromObject(Kind::kUndefined, std::move(undefined));
}

std::vector<Value> Bind(Interpreter& interpreter, std::string_view function, Arguments& args,
                        const std::vector<std::string_view>& parameters, size_t required) {
  std::vector<Value> bound(parameters.size());
  if (args.positional.size() > parameters.size())
    interpreter.FailType(
        fmt::format("{}() takes at most {} arguments ({} given)", function, parameters.size(), args.positional.size()));
  std::move(args.positional.begin(), args.positional.end(), bound.begin());
  for (auto& [name, value] : args.named) {
    const auto found = std::find(parameters.begin(), parameters.end(), name);
    if (found == parameters.end())
      interpreter.FailType(fmt::format("{}() got an unexpected keyword argument '{}'", function, name));
    Value& slot = bound[static_cast<size_t>(found - parameters.begin())];
    if (!slot.missing())
      interpreter.FailType(fmt::format("{}() got multiple values for argument '{}'", function, name));
    slot = std::move(value);
  }
  for (size_t i = 0; i < required; ++i)
    if (bound[i].missing())
      interpreter.FailType(fmt::format("{}() missing 1 required positional argument: '{}'", function, parameters[i]));
  return bound;
}

}  // namespace octavo::text::jinja
