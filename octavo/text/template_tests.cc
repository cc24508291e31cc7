// Tests: what stands behind `is`.
#include <fmt/format.h>

#include "octavo/text/template_compare.h"
#include "octavo/text/template_filters.h"
#include "octavo/text/template_interpreter.h"
#include "octavo/text/template_methods.h"

namespace octavo::text::jinja {
namespace {

void NoArguments(Interpreter& interpreter, Arguments& args) { Bind(interpreter, "test", args, {}); }

Value OneArgument(Interpreter& interpreter, Arguments& args) {
  return Bind(interpreter, "test", args, {"other"}, 1)[0];
}

template <Kind kind>
bool TestKind(Interpreter& interpreter, const Value& value, Arguments& args) {
  NoArguments(interpreter, args);
  return value.is(kind);
}

bool TestDefined(Interpreter& interpreter, const Value& value, Arguments& args) {
  NoArguments(interpreter, args);
  return !value.undefined();
}

template <bool wanted>
bool TestBoolean(Interpreter& interpreter, const Value& value, Arguments& args) {
  NoArguments(interpreter, args);
  return value.is(Kind::kBool) && value.boolean() == wanted;
}

bool TestInteger(Interpreter& interpreter, const Value& value, Arguments& args) {
  NoArguments(interpreter, args);
  return value.is(Kind::kInt) || value.is(Kind::kBigInt);
}

bool TestNumber(Interpreter& interpreter, const Value& value, Arguments& args) {
  NoArguments(interpreter, args);
  return value.is_number() || value.is(Kind::kBigInt);
}

bool TestSequence(Interpreter& interpreter, const Value& value, Arguments& args) {
  NoArguments(interpreter, args);
  return value.is_string() || value.is_sequence() || value.is(Kind::kDict) || value.is(Kind::kRange) ||
         value.undefined();
}

bool TestIterable(Interpreter& interpreter, const Value& value, Arguments& args) {
  NoArguments(interpreter, args);
  return interpreter.CanIterate(value);
}

bool TestCallable(Interpreter& interpreter, const Value& value, Arguments& args) {
  NoArguments(interpreter, args);
  return IsCallable(value);
}

bool TestEscaped(Interpreter& interpreter, const Value& value, Arguments& args) {
  NoArguments(interpreter, args);
  return value.is_string() && value.text().markup();
}

bool TestSameAs(Interpreter& interpreter, const Value& value, Arguments& args) {
  return Identical(value, OneArgument(interpreter, args));
}

bool TestRemainder(Interpreter& interpreter, const Value& value, const Value& divisor, int64_t wanted) {
  return interpreter.Equals(ApplyBinary(interpreter, BinaryOp::kMod, value, divisor), Value::Int(wanted));
}

template <int wanted>
bool TestParity(Interpreter& interpreter, const Value& value, Arguments& args) {
  NoArguments(interpreter, args);
  return TestRemainder(interpreter, value, Value::Int(2), wanted);
}

bool TestDivisible(Interpreter& interpreter, const Value& value, Arguments& args) {
  const Value divisor = Bind(interpreter, "divisibleby", args, {"num"}, 1)[0];
  return TestRemainder(interpreter, value, divisor, 0);
}

template <const char* const* method>
bool TestCase(Interpreter& interpreter, const Value& value, Arguments& args) {
  NoArguments(interpreter, args);
  Arguments none;
  const Value text = Value::String(interpreter.ToText(value));
  return IsTrue(FindStringMethod(*method)(interpreter, text, none));
}
constexpr const char* kIsLower = "islower";
constexpr const char* kIsUpper = "isupper";

bool TestIn(Interpreter& interpreter, const Value& value, Arguments& args) {
  return Contains(interpreter, Bind(interpreter, "in", args, {"seq"}, 1)[0], value);
}

bool TestEqual(Interpreter& interpreter, const Value& value, Arguments& args) {
  return interpreter.Equals(value, OneArgument(interpreter, args));
}

bool TestNotEqual(Interpreter& interpreter, const Value& value, Arguments& args) {
  return !TestEqual(interpreter, value, args);
}

template <CompareOp op>
bool TestOrder(Interpreter& interpreter, const Value& value, Arguments& args) {
  return interpreter.Compare(op, value, OneArgument(interpreter, args));
}

bool TestFilterName(Interpreter& interpreter, const Value& value, Arguments& args) {
  NoArguments(interpreter, args);
  return interpreter.CheckKey(value).is_string() && FindFilter(value.str()) != nullptr;
}

bool TestTestName(Interpreter& interpreter, const Value& value, Arguments& args) {
  NoArguments(interpreter, args);
  return interpreter.CheckKey(value).is_string() && FindTest(value.str()) != nullptr;
}

bool TestAnyBoolean(Interpreter& interpreter, const Value& value, Arguments& args) {
  return TestKind<Kind::kBool>(interpreter, value, args);
}

constexpr TestEntry kTests[] = {
    {"!=", TestNotEqual},
    {"<", TestOrder<CompareOp::kLt>},
    {"<=", TestOrder<CompareOp::kLe>},
    {"==", TestEqual},
    {">", TestOrder<CompareOp::kGt>},
    {">=", TestOrder<CompareOp::kGe>},
    {"boolean", TestAnyBoolean},
    {"callable", TestCallable},
    {"defined", TestDefined},
    {"divisibleby", TestDivisible},
    {"eq", TestEqual},
    {"equalto", TestEqual},
    {"escaped", TestEscaped},
    {"even", TestParity<0>},
    {"false", TestBoolean<false>},
    {"filter", TestFilterName},
    {"float", TestKind<Kind::kFloat>},
    {"ge", TestOrder<CompareOp::kGe>},
    {"greaterthan", TestOrder<CompareOp::kGt>},
    {"gt", TestOrder<CompareOp::kGt>},
    {"in", TestIn},
    {"integer", TestInteger},
    {"iterable", TestIterable},
    {"le", TestOrder<CompareOp::kLe>},
    {"lessthan", TestOrder<CompareOp::kLt>},
    {"lower", TestCase<&kIsLower>},
    {"lt", TestOrder<CompareOp::kLt>},
    {"mapping", TestKind<Kind::kDict>},
    {"ne", TestNotEqual},
    {"none", TestKind<Kind::kNone>},
    {"number", TestNumber},
    {"odd", TestParity<1>},
    {"sameas", TestSameAs},
    {"sequence", TestSequence},
    {"string", TestKind<Kind::kString>},
    {"test", TestTestName},
    {"true", TestBoolean<true>},
    {"undefined", TestKind<Kind::kUndefined>},
    {"upper", TestCase<&kIsUpper>},
};

}  // namespace

TestFunction FindTest(std::string_view name) {
  for (const TestEntry& entry : kTests)
    if (entry.name == name) return entry.function;
  return nullptr;
}

}  // namespace octavo::text::jinja
