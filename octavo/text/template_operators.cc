// Arithmetic, slices and containment with Python's results and errors. Integers are 64 bits; a result beyond is an
// error.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "octavo/text/template_compare.h"
#include "octavo/text/template_format.h"
#include "octavo/text/template_interpreter.h"
#include "octavo/text/template_search.h"
#include "octavo/text/template_unicode.h"

namespace octavo::text::jinja {
namespace {

constexpr std::string_view kSymbols[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};

[[noreturn]] void FailOperands(Interpreter& interpreter, BinaryOp op, const Value& left, const Value& right) {
  interpreter.FailType(fmt::format("unsupported operand type(s) for {}: '{}' and '{}'",
                                   kSymbols[static_cast<size_t>(op)], TypeName(left), TypeName(right)));
}

[[noreturn]] void FailOverflow(Interpreter& interpreter) {
  interpreter.Fail("OverflowError", "an integer result does not fit in 64 bits");
}

[[noreturn]] void FailZero(Interpreter& interpreter, const char* message) {
  interpreter.Fail("ZeroDivisionError", message);
}

int64_t FloorDivide(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return quotient - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0);
}

// Python's divmod of floats, step by step: the order of its roundings shows in the last digit.
struct FloatDivision {
  double quotient, rest;
};

FloatDivision DivideFloats(double a, double b) {
  double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest == 0) {
    rest = std::copysign(0.0, b);
  } else if ((b < 0) != (rest < 0)) {
    rest += b;
    quotient -= 1;
  }
  if (quotient == 0) return {std::copysign(0.0, a / b), rest};
  const double floored = std::floor(quotient);
  return {quotient - floored > 0.5 ? floored + 1 : floored, rest};
}

Value IntPower(Interpreter& interpreter, int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) FailZero(interpreter, "0.0 cannot be raised to a negative power");
    return Value::Float(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) FailOverflow(interpreter);
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) FailOverflow(interpreter);
  }
  return Value::Int(result);
}

Value FloatPower(Interpreter& interpreter, double base, double exponent) {
  if (base == 0 && exponent < 0) FailZero(interpreter, "0.0 cannot be raised to a negative power");
  if (base < 0 && std::isfinite(exponent) && exponent != std::floor(exponent))
    interpreter.FailUnsupported("a fractional power of a negative number");
  const double result = std::pow(base, exponent);
  if (std::isinf(result) && std::isfinite(base) && std::isfinite(exponent))
    interpreter.Fail("OverflowError", "(34, 'Numerical result out of range')");
  return Value::Float(result);
}

Value IntArithmetic(Interpreter& interpreter, BinaryOp op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case BinaryOp::kAdd:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case BinaryOp::kSub:
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case BinaryOp::kMul:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case BinaryOp::kDiv:
      if (b == 0) FailZero(interpreter, "division by zero");
      return Value::Float(static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b)));
    case BinaryOp::kFloorDiv:
      if (b == 0) FailZero(interpreter, "integer division or modulo by zero");
      if (b == -1)
        overflow = __builtin_sub_overflow(static_cast<int64_t>(0), a, &result);
      else
        result = FloorDivide(a, b);
      break;
    case BinaryOp::kMod:
      if (b == 0) FailZero(interpreter, "integer modulo by zero");
      if (b != -1) {
        result = a % b;
        if (result != 0 && (result < 0) != (b < 0)) result += b;
      }
      break;
    case BinaryOp::kPow:
      return IntPower(interpreter, a, b);
  }
  if (overflow) FailOverflow(interpreter);
  return Value::Int(result);
}

Value FloatArithmetic(Interpreter& interpreter, BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::kAdd:
      return Value::Float(a + b);
    case BinaryOp::kSub:
      return Value::Float(a - b);
    case BinaryOp::kMul:
      return Value::Float(a * b);
    case BinaryOp::kDiv:
      if (b == 0) FailZero(interpreter, "float division by zero");
      return Value::Float(a / b);
    case BinaryOp::kFloorDiv:
      if (b == 0) FailZero(interpreter, "float floor division by zero");
      return Value::Float(DivideFloats(a, b).quotient);
    case BinaryOp::kMod:
      if (b == 0) FailZero(interpreter, "float modulo");
      return Value::Float(DivideFloats(a, b).rest);
    case BinaryOp::kPow:
      return FloatPower(interpreter, a, b);
  }
  return Value();
}

Value AddStrings(Interpreter& interpreter, const Text& left, const Text& right) {
  const bool markup = left.markup() || right.markup();
  Text sum = markup ? EscapeHtml(left) : left;
  sum.Append(markup ? EscapeHtml(right) : right);
  sum.set_markup(markup);
  return interpreter.NewString(std::move(sum));
}

Value AddSequences(Interpreter& interpreter, const Value& left, const Value& right) {
  std::vector<Value> items = left.items();
  items.insert(items.end(), right.items().begin(), right.items().end());
  return left.is(Kind::kList) ? interpreter.NewList(std::move(items)) : interpreter.NewTuple(std::move(items));
}

Value Repeat(Interpreter& interpreter, const Value& sequence, int64_t count) {
  count = std::max<int64_t>(count, 0);
  if (sequence.is_string()) {
    const Text& text = sequence.text();
    const size_t limit = interpreter.limits().output_bytes;
    if (!text.empty() && static_cast<uint64_t>(count) > limit / text.size())
      interpreter.FailLimit(fmt::format("a string longer than {} bytes", limit));
    Text result;
    result.Reserve(text.size() * static_cast<size_t>(text.empty() ? 0 : count));
    for (int64_t i = 0; i < count && !text.empty(); ++i) result.Append(text);
    result.set_markup(text.markup());
    return interpreter.NewString(std::move(result));
  }
  const std::vector<Value>& items = sequence.items();
  if (!items.empty()) {
    // Refuse before anything is allocated.
    interpreter.Charge(static_cast<uint64_t>(std::min<int64_t>(count, INT64_MAX / 1'000'000)) * items.size());
  }
  std::vector<Value> result;
  for (int64_t i = 0; i < count && !items.empty(); ++i) result.insert(result.end(), items.begin(), items.end());
  return sequence.is(Kind::kList) ? interpreter.NewList(std::move(result)) : interpreter.NewTuple(std::move(result));
}

// Add, multiply and format of strings and sequences; kMissing when the operands are not of that kind.
Value ApplyToSequences(Interpreter& interpreter, BinaryOp op, const Value& left, const Value& right) {
  const auto sequence = [](const Value& value) { return value.is_string() || value.is_sequence(); };
  if (op == BinaryOp::kAdd && sequence(left)) {
    if (left.is_string() && right.is_string()) return AddStrings(interpreter, left.text(), right.text());
    if (left.is_sequence() && left.kind() == right.kind()) return AddSequences(interpreter, left, right);
    if (left.is_string() && left.text().markup()) FailOperands(interpreter, op, left, right);
    const std::string_view type = left.is_string() ? "str" : left.is(Kind::kList) ? "list" : "tuple";
    interpreter.FailType(fmt::format("can only concatenate {} (not \"{}\") to {}", type, TypeName(right), type));
  }
  if (op == BinaryOp::kMul && (sequence(left) || sequence(right))) {
    if (sequence(left) && right.is_integral()) return Repeat(interpreter, left, right.integer());
    if (sequence(right) && left.is_integral()) return Repeat(interpreter, right, left.integer());
    const Value& other = sequence(left) ? right : left;
    interpreter.FailType(fmt::format("can't multiply sequence by non-int of type '{}'", TypeName(other)));
  }
  if (op == BinaryOp::kMod && left.is_string())
    return interpreter.NewString(FormatPercent(interpreter, left.text(), right));
  return Value();
}

// Python's slice.indices(): where to start, how many, which way.
struct SliceRange {
  int64_t start = 0, stop = 0, step = 1, count = 0;
};

SliceRange ResolveSlice(Interpreter& interpreter, int64_t size, const Value& start, const Value& stop,
                        const Value& step) {
  const std::string error = "slice indices must be integers or None or have an __index__ method";
  SliceRange range;
  if (!step.none()) range.step = ToIndex(interpreter, step, error);
  if (range.step == 0) interpreter.Fail("ValueError", "slice step cannot be zero");
  range.step = std::max<int64_t>(range.step, -INT64_MAX);
  const bool backwards = range.step < 0;
  const int64_t lowest = backwards ? -1 : 0, highest = backwards ? size - 1 : size;
  const auto clamp = [&](const Value& value, int64_t otherwise) {
    if (value.none()) return otherwise;
    int64_t index = ToIndex(interpreter, value, error);
    if (index < 0) index = index < -size ? lowest : index + size;
    return std::clamp(index, lowest, highest);
  };
  range.start = clamp(start, backwards ? highest : lowest);
  range.stop = clamp(stop, backwards ? lowest : highest);
  if (backwards)
    range.count = range.stop < range.start ? (range.start - range.stop - 1) / -range.step + 1 : 0;
  else
    range.count = range.start < range.stop ? (range.stop - range.start - 1) / range.step + 1 : 0;
  return range;
}

Value SliceString(Interpreter& interpreter, const Value& object, const Value& start, const Value& stop,
                  const Value& step) {
  const Text& text = object.text();
  const SliceRange range = ResolveSlice(interpreter, interpreter.LengthOf(object), start, stop, step);
  Text result;
  if (range.count > 0 && range.step == 1) {
    const size_t begin = ByteOffset(text.bytes(), static_cast<size_t>(range.start));
    const std::string_view rest = std::string_view(text.bytes()).substr(begin);
    result = text.Slice(begin, begin + ByteOffset(rest, static_cast<size_t>(range.count)));
  } else if (range.count > 0) {
    std::vector<size_t> offsets;
    for (size_t at = 0; at < text.size(); NextChar(text.bytes(), &at)) offsets.push_back(at);
    offsets.push_back(text.size());
    interpreter.Charge(offsets.size());
    for (int64_t i = 0, at = range.start; i < range.count; ++i, at += range.step)
      result.Append(text, offsets[static_cast<size_t>(at)], offsets[static_cast<size_t>(at) + 1]);
  }
  result.set_markup(text.markup());
  return interpreter.NewString(std::move(result));
}

}  // namespace

int64_t ToIndex(Interpreter& interpreter, const Value& value, const std::string& error) {
  if (!value.is_integral()) interpreter.FailType(error);
  return value.integer();
}

Value ApplyBinary(Interpreter& interpreter, BinaryOp op, const Value& left, const Value& right) {
  // Undefined refuses whatever stands beside it, except the arguments of a format.
  if (left.undefined()) interpreter.FailUndefined(left);
  const bool format = op == BinaryOp::kMod && left.is_string();
  if (right.undefined() && !format) interpreter.FailUndefined(right);
  if (left.is_integral() && right.is_integral()) return IntArithmetic(interpreter, op, left.integer(), right.integer());
  if (left.is_number() && right.is_number()) return FloatArithmetic(interpreter, op, left.real(), right.real());
  if (!format && (left.is(Kind::kBigInt) || right.is(Kind::kBigInt))) FailOverflow(interpreter);
  const Value result = ApplyToSequences(interpreter, op, left, right);
  if (result.missing()) FailOperands(interpreter, op, left, right);
  return result;
}

Value ApplyNegate(Interpreter& interpreter, const Value& value) {
  if (value.undefined()) interpreter.FailUndefined(value);
  if (value.is(Kind::kFloat)) return Value::Float(-value.real());
  if (!value.is_integral()) interpreter.FailType(fmt::format("bad operand type for unary -: '{}'", TypeName(value)));
  if (value.integer() == INT64_MIN) FailOverflow(interpreter);
  return Value::Int(-value.integer());
}

Value ApplySlice(Interpreter& interpreter, const Value& object, const Value& start, const Value& stop,
                 const Value& step) {
  switch (object.kind()) {
    case Kind::kUndefined:
      interpreter.FailUndefined(object);
    case Kind::kString:
      return SliceString(interpreter, object, start, stop, step);
    case Kind::kList:
    case Kind::kTuple: {
      const std::vector<Value>& items = object.items();
      const SliceRange range = ResolveSlice(interpreter, static_cast<int64_t>(items.size()), start, stop, step);
      interpreter.ChargeItems(static_cast<size_t>(range.count));
      std::vector<Value> result;
      result.reserve(static_cast<size_t>(range.count));
      for (int64_t i = 0, at = range.start; i < range.count; ++i, at += range.step)
        result.push_back(items[static_cast<size_t>(at)]);
      return object.is(Kind::kList) ? Value::List(std::move(result)) : Value::Tuple(std::move(result));
    }
    case Kind::kRange: {
      const auto& source = object.object<RangeObject>();
      const SliceRange range = ResolveSlice(interpreter, source.size(), start, stop, step);
      auto made = std::make_shared<RangeObject>();
      const auto at = [&](int64_t index) {
        const __int128 value = source.start + static_cast<__int128>(index) * source.step;
        if (value < INT64_MIN || value > INT64_MAX) FailOverflow(interpreter);
        return static_cast<int64_t>(value);
      };
      made->start = at(range.start);
      made->stop = at(range.stop);
      if (__builtin_mul_overflow(source.step, range.step, &made->step)) FailOverflow(interpreter);
      return Value::FromObject(Kind::kRange, std::move(made));
    }
    case Kind::kDict:
      interpreter.FailType("unhashable type: 'slice'");
    default:
      interpreter.FailType(fmt::format("'{}' object is not subscriptable", TypeName(object)));
  }
}

bool Contains(Interpreter& interpreter, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kString:
      if (!item.is_string())
        interpreter.FailType(fmt::format("'in <string>' requires string as left operand, not {}", TypeName(item)));
      interpreter.ChargeScan(container.text().size());
      return FindPart(container.str(), item.str()) != std::string_view::npos;
    case Kind::kDict:
      return interpreter.Lookup(container.dict(), item) != nullptr;
    case Kind::kView: {
      const auto& view = container.object<ViewObject>();
      if (view.part == ViewObject::Part::kKeys) return interpreter.Lookup(view.dict.dict(), item) != nullptr;
      break;
    }
    default:
      break;
  }
  if (!interpreter.CanIterate(container))
    interpreter.FailType(fmt::format("argument of type '{}' is not iterable", TypeName(container)));
  const IteratorPtr iterator = interpreter.Iterate(container);
  Value candidate;
  while (iterator->Next(interpreter, &candidate))
    if (interpreter.Equals(candidate, item)) return true;
  return false;
}

Text EscapeHtml(const Text& text) {
  if (text.markup()) return text;
  Text result;
  const std::string_view bytes = text.bytes();
  size_t begin = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string_view entity;
    switch (bytes[i]) {
      case '&':
        entity = "&amp;";
        break;
      case '<':
        entity = "&lt;";
        break;
      case '>':
        entity = "&gt;";
        break;
      case '"':
        entity = "&#34;";
        break;
      case '\'':
        entity = "&#39;";
        break;
      default:
        continue;
    }
    result.Append(text, begin, i);
    result.Append(entity, text.MarksAt(i));
    begin = i + 1;
  }
  result.Append(text, begin, text.size());
  result.set_markup(true);
  return result;
}

}  // namespace octavo::text::jinja
