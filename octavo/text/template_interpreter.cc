// Services of the interpreter: errors, the budget, new values, comparing, iteration.
#include "octavo/text/template_interpreter.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>

#include "octavo/text/template_compare.h"
#include "octavo/text/template_error.h"
#include "octavo/text/template_lexer.h"
#include "octavo/text/template_repr.h"
#include "octavo/text/template_unicode.h"

namespace octavo::text::jinja {
namespace {

constexpr uint64_t kTicksPerStep = 8;
constexpr uint64_t kTicksPerTimeCheck = 4096;
constexpr Place kStart;

// Time of this thread on a processor: a busy machine must not make an honest template fail.
int64_t ProcessorNanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

class FunctionIterator : public IteratorObject {
 public:
  explicit FunctionIterator(std::function<bool(Interpreter&, Value*)> next) : next_(std::move(next)) {}
  bool Next(Interpreter& interpreter, Value* item) override {
    interpreter.Charge(4);
    if (!done_) done_ = !next_(interpreter, item);
    return !done_;
  }

 private:
  std::function<bool(Interpreter&, Value*)> next_;
  bool done_ = false;
};

}  // namespace

IteratorPtr MakeIterator(const Value& holds, std::function<bool(Interpreter&, Value*)> next) {
  auto iterator = std::make_shared<FunctionIterator>(std::move(next));
  Contain(iterator.get(), holds);
  iterator->weight = 1;  // nothing walks into it
  return iterator;
}

Interpreter::Interpreter(const Program& program, const Variables& variables, const RenderOptions& options)
    : program_(program),
      variables_(variables),
      options_(options),
      place_(&kStart),
      tick_limit_(kTicksPerStep * static_cast<uint64_t>(std::max<int64_t>(options.limits.steps, 0))),
      next_time_check_(kTicksPerTimeCheck),
      deadline_ns_(ProcessorNanoseconds() + std::chrono::nanoseconds(options.limits.processor_time).count()) {}

Interpreter::~Interpreter() {
  // All of them are still held here, so emptying one destroys no other.
  for (const auto& one : namespaces_) one->attributes = DictObject();
  for (const auto& one : captured_) one->slots.clear();
  for (const auto& one : loops_) one->last_changed = Value();
}

void Interpreter::Fail(std::string_view kind, const std::string& detail, const std::string& shown) const {
  throw TemplateError(ErrorCode::kUsage, std::string(kind), detail, place_->line, shown,
                      Excerpt(program_.source, place_->position));
}

void Interpreter::FailLimit(const std::string& detail) const { Fail("LimitError", detail); }

void Interpreter::FailUndefined(const Value& undefined) const {
  const bool security = undefined.object<UndefinedObject>().security;
  Fail(security ? "SecurityError" : "UndefinedError", UndefinedMessage(undefined));
}

void Interpreter::FailUnsupported(const std::string& what) const {
  Fail("NotImplementedError", fmt::format("{} is not supported", what));
}

void Interpreter::Charge(uint64_t ticks) {
  ticks_ += ticks;
  if (ticks_ > tick_limit_) FailLimit(fmt::format("more than {} steps", options_.limits.steps));
  if (ticks_ >= next_time_check_) CheckTime();
}

void Interpreter::CheckTime() {
  next_time_check_ = ticks_ + kTicksPerTimeCheck;
  if (ProcessorNanoseconds() > deadline_ns_)
    FailLimit(fmt::format("took longer than {} ms", options_.limits.processor_time.count()));
}

Value Interpreter::NewString(Text text) {
  Charge(1 + text.size() / 16);
  if (text.size() > options_.limits.output_bytes)
    FailLimit(fmt::format("a string of {} bytes; at most {} are allowed", text.size(), options_.limits.output_bytes));
  return Value::String(std::move(text));
}

Value Interpreter::NewList(std::vector<Value> items) {
  ChargeItems(items.size());
  return Value::List(std::move(items));
}

Value Interpreter::NewTuple(std::vector<Value> items) {
  ChargeItems(items.size());
  return Value::Tuple(std::move(items));
}

Value Interpreter::NewNamespace(const DictObject& attributes) {
  auto object = std::make_shared<NamespaceObject>();
  object->attributes = attributes;
  namespaces_.push_back(object);
  return Value::FromObject(Kind::kNamespace, std::move(object));
}

Value Interpreter::NewIterator(IteratorPtr iterator) { return Value::FromObject(Kind::kIterator, std::move(iterator)); }

Value Interpreter::NewUndefined(std::string hint) {
  auto object = std::make_shared<UndefinedObject>();
  object->hint = std::move(hint);
  object->name = Value::None();
  return Value::FromObject(Kind::kUndefined, std::move(object));
}

bool Interpreter::Equals(const Value& a, const Value& b) {
  Charge(std::min(a.weight(), b.weight()));
  return Equal(a, b);
}

bool Interpreter::LessThan(const Value& a, const Value& b, std::string_view op) {
  Charge(std::min(a.weight(), b.weight()));
  const LessResult result = Less(a, b);
  if (!result.undefined.missing()) FailUndefined(result.undefined);
  if (!result.incomparable.empty())
    FailType(fmt::format("'{}' not supported between instances of {}", op, result.incomparable));
  return result.less;
}

const Value& Interpreter::CheckKey(const Value& key) {
  Charge(key.weight());
  if (const std::string_view type = Unhashable(key); !type.empty())
    FailType(fmt::format("unhashable type: '{}'", type));
  return key;
}

const Value* Interpreter::Lookup(const DictObject& dict, const Value& key) { return dict.Find(CheckKey(key)); }

Text Interpreter::ToText(const Value& value) {
  if (value.is_string()) return value.text();
  if (value.is(Kind::kLoop)) {
    auto& loop = value.object<LoopObject>();
    return Text(fmt::format("<LoopContext {}/{}>", loop.index0 + 1, LengthOf(value)));
  }
  if (value.is(Kind::kMacro)) {
    const Function& function = *value.object<MacroObject>().function;
    return Text(function.anonymous ? "<Macro anonymous>" : fmt::format("<Macro {}>", ReprOf(function.name)));
  }
  Charge(value.weight());
  Text text = Str(value);
  Charge(text.size() / 16);
  return text;
}

int64_t Interpreter::LengthOf(const Value& value) {
  if (value.is(Kind::kLoop)) {
    // Without a known length the rest is read ahead and counted.
    auto& loop = value.object<LoopObject>();
    if (loop.known_length >= 0) return loop.known_length;
    if (const std::optional<int64_t> length = Length(loop.iterable)) return loop.known_length = *length;
    std::vector<Value> rest;
    Value item;
    while (loop.iterator->Next(*this, &item)) rest.push_back(item);
    loop.known_length = static_cast<int64_t>(rest.size()) + loop.index0 + 1 + (loop.after.missing() ? 0 : 1);
    loop.iterator = Iterate(NewList(std::move(rest)));
    return loop.known_length;
  }
  if (value.is_string()) ChargeScan(value.text().size());
  const std::optional<int64_t> length = Length(value);
  if (!length) FailType(fmt::format("object of type '{}' has no len()", TypeName(value)));
  return *length;
}

std::vector<Value> Interpreter::ToItems(const Value& value) {
  if (value.is_sequence()) {
    ChargeItems(value.items().size());
    return value.items();
  }
  std::vector<Value> items;
  const IteratorPtr iterator = Iterate(value);
  Value item;
  while (iterator->Next(*this, &item)) items.push_back(std::move(item));
  return items;
}

bool Interpreter::CanIterate(const Value& value) const {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kRange:
    case Kind::kView:
    case Kind::kIterator:
    case Kind::kLoop:
      return true;
    default:
      return false;
  }
}

IteratorPtr Interpreter::Iterate(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return MakeIterator(Value(), [](Interpreter&, Value*) { return false; });
    case Kind::kString:
      return MakeIterator(value, [value, at = size_t{0}](Interpreter& interpreter, Value* item) mutable {
        if (at >= value.text().size()) return false;
        const size_t begin = at;
        NextChar(value.str(), &at);
        *item = interpreter.NewString(value.text().Slice(begin, at));
        return true;
      });
    case Kind::kList:
    case Kind::kTuple:
      return MakeIterator(value, [value, at = size_t{0}](Interpreter&, Value* item) mutable {
        if (at >= value.items().size()) return false;
        *item = value.items()[at++];
        return true;
      });
    case Kind::kDict:
      return MakeIterator(value, [value, at = size_t{0}](Interpreter&, Value* item) mutable {
        if (at >= value.dict().size()) return false;
        *item = value.dict().entries()[at++].first;
        return true;
      });
    case Kind::kRange:
      return MakeIterator(value, [value, at = int64_t{0}](Interpreter&, Value* item) mutable {
        const auto& range = value.object<RangeObject>();
        if (at >= range.size()) return false;
        *item = Value::Int(range.at(at++));
        return true;
      });
    case Kind::kView:
      return MakeIterator(value, [value, at = size_t{0}](Interpreter&, Value* item) mutable {
        const auto& view = value.object<ViewObject>();
        if (at >= view.dict.dict().size()) return false;
        *item = view.at(at++);
        return true;
      });
    case Kind::kIterator:
      return std::static_pointer_cast<IteratorObject>(value.shared());
    default:
      FailType(fmt::format("'{}' object is not iterable", TypeName(value)));
  }
}

}  // namespace octavo::text::jinja
