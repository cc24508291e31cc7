// Filters about numbers, and the choice of a default.
#include <fmt/format.h>

#include <cmath>

#include "octavo/text/template_compare.h"
#include "octavo/text/template_filters.h"
#include "octavo/text/template_interpreter.h"
#include "octavo/text/template_methods.h"
#include "octavo/text/template_number.h"

namespace octavo::text::jinja {
namespace {

Value FilterAbs(Interpreter& interpreter, const Value& value, Arguments& args) {
  Bind(interpreter, "abs", args, {});
  if (value.is(Kind::kFloat)) return Value::Float(std::fabs(value.real()));
  if (!value.is_integral()) interpreter.FailType(fmt::format("bad operand type for abs(): '{}'", TypeName(value)));
  return value.integer() < 0 ? ApplyNegate(interpreter, value) : Value::Int(value.integer());
}

// int(value), or none when Python would raise TypeError or ValueError.
Value ConvertToInt(Interpreter& interpreter, const Value& value, int64_t base) {
  if (value.is_integral()) return Value::Int(value.integer());
  if (value.is(Kind::kBigInt)) return value;
  int64_t whole = 0;
  double real = 0;
  if (value.is_string()) {
    interpreter.ChargeScan(value.text().size());
    if (base == 0 || (base >= 2 && base <= 36)) {
      switch (ParseInt(value.str(), static_cast<int>(base), &whole)) {
        case IntParse::kOk:
          return Value::Int(whole);
        case IntParse::kTooLarge:
          interpreter.Fail("OverflowError", "an integer does not fit in 64 bits");
        case IntParse::kInvalid:
          break;
      }
    }
    if (!ParseFloat(value.str(), &real)) return Value();
  } else if (value.is(Kind::kFloat)) {
    real = value.real();
  } else {
    return Value();
  }
  if (TruncateToInt(real, &whole)) return Value::Int(whole);
  if (!std::isfinite(real)) return Value();
  interpreter.Fail("OverflowError", "an integer does not fit in 64 bits");
}

Value FilterInt(Interpreter& interpreter, const Value& value, Arguments& args) {
  const std::vector<Value> given = Bind(interpreter, "do_int", args, {"default", "base"});
  if (value.undefined()) interpreter.FailUndefined(value);
  if (value.is(Kind::kFloat) && std::isinf(value.real()))
    interpreter.Fail("OverflowError", "cannot convert float infinity to integer");
  const Value result = ConvertToInt(interpreter, value, IntArgument(interpreter, given[1], 10));
  if (!result.missing()) return result;
  return given[0].missing() ? Value::Int(0) : given[0];
}

Value FilterFloat(Interpreter& interpreter, const Value& value, Arguments& args) {
  const std::vector<Value> given = Bind(interpreter, "do_float", args, {"default"});
  if (value.undefined()) interpreter.FailUndefined(value);
  if (value.is_number()) return Value::Float(value.real());
  double real = 0;
  if ((value.is_string() || value.is(Kind::kBigInt)) && ParseFloat(value.str(), &real)) return Value::Float(real);
  return given[0].missing() ? Value::Float(0) : given[0];
}

// round(value, digits) to even at exact halves, as Python does it on the decimal digits.
Value RoundCommon(Interpreter& interpreter, const Value& value, int64_t digits) {
  if (value.is_integral()) {
    if (digits >= 0) return Value::Int(value.integer());
    if (digits < -18) return Value::Int(0);
    int64_t unit = 1;
    for (int64_t i = 0; i < -digits; ++i) unit *= 10;
    const __int128 whole = value.integer();
    __int128 down = whole / unit * unit;
    if (down > whole) down -= unit;
    const __int128 rest = whole - down;
    const bool up = rest * 2 > unit || (rest * 2 == unit && (down / unit) % 2 != 0);
    const __int128 rounded = up ? down + unit : down;
    if (rounded > INT64_MAX || rounded < INT64_MIN)
      interpreter.Fail("OverflowError", "an integer result does not fit in 64 bits");
    return Value::Int(static_cast<int64_t>(rounded));
  }
  const double real = value.real();
  if (!std::isfinite(real) || digits > 322) return value;
  if (digits < -308) return Value::Float(std::copysign(0.0, real));
  double result = 0;
  if (digits >= 0) {
    ParseFloat(FormatFixed(real, static_cast<int>(digits)), &result);
  } else {
    // Round the whole part's decimal digits: d.dde+N with fewer digits.
    const double unit = std::pow(10.0, static_cast<double>(-digits));
    result = std::nearbyint(real / unit) * unit;
  }
  return Value::Float(result);
}

Value FilterRound(Interpreter& interpreter, const Value& value, Arguments& args) {
  const std::vector<Value> given = Bind(interpreter, "do_round", args, {"precision", "method"});
  if (value.undefined()) interpreter.FailType("type Undefined doesn't define __round__ method");
  const std::string method = given[1].missing() ? "common" : interpreter.ToText(given[1]).bytes();
  if (method != "common" && method != "ceil" && method != "floor")
    interpreter.Fail("FilterArgumentError", "method must be common, ceil or floor");
  if (!value.is_number()) interpreter.FailType(fmt::format("type {} doesn't define __round__ method", TypeName(value)));
  const int64_t digits = IntArgument(interpreter, given[0], 0);
  if (method == "common") return RoundCommon(interpreter, value, digits);
  if (digits < -300 || digits > 300) interpreter.Fail("OverflowError", "precision out of range");
  const Value ten = digits < 0 ? Value::Float(10) : Value::Int(10);
  const Value unit = ApplyBinary(interpreter, BinaryOp::kPow, ten, Value::Int(digits));
  const Value scaled = ApplyBinary(interpreter, BinaryOp::kMul, value, unit);
  Value whole = scaled;
  if (scaled.is(Kind::kFloat)) {
    const double edge = method == "ceil" ? std::ceil(scaled.real()) : std::floor(scaled.real());
    int64_t fits = 0;
    whole = TruncateToInt(edge, &fits) ? Value::Int(fits) : Value::Float(edge);
  }
  return ApplyBinary(interpreter, BinaryOp::kDiv, whole, unit);
}

Value FilterDefault(Interpreter& interpreter, const Value& value, Arguments& args) {
  const std::vector<Value> given = Bind(interpreter, "do_default", args, {"default_value", "boolean"});
  if (!value.undefined() && !(IsTrue(given[1]) && !IsTrue(value))) return value;
  return given[0].missing() ? Value::String("") : given[0];
}

constexpr FilterEntry kFilters[] = {
    {"abs", FilterAbs},     {"d", FilterDefault}, {"default", FilterDefault},
    {"float", FilterFloat}, {"int", FilterInt},   {"round", FilterRound},
};

}  // namespace

std::span<const FilterEntry> NumberFilters() { return kFilters; }

FilterFunction FindFilter(std::string_view name) {
  for (const auto table : {TextFilters(), SequenceFilters(), SelectionFilters(), NumberFilters()})
    for (const FilterEntry& entry : table)
      if (entry.name == name) return entry.function;
  return nullptr;
}

}  // namespace octavo::text::jinja
