// The functions a template finds without being given them: range, dict, namespace, cycler, joiner, and the two that
// chat templates add, raise_exception and strftime_now.
#include <fmt/format.h>
#include <time.h>

#include <chrono>

#include "octavo/text/template_compare.h"
#include "octavo/text/template_filters.h"
#include "octavo/text/template_interpreter.h"
#include "octavo/text/template_methods.h"
#include "octavo/text/template_unicode.h"

namespace octavo::text::jinja {
namespace {

Value CallRange(Interpreter& interpreter, const Value&, Arguments& args) {
  const std::vector<Value> given = Positional(interpreter, "range", args, 1, 3);
  auto range = std::make_shared<RangeObject>();
  const auto index = [&](const Value& value) { return IntArgument(interpreter, value, 0); };
  if (given[1].missing()) {
    range->stop = index(given[0]);
  } else {
    range->start = index(given[0]);
    range->stop = index(given[1]);
    if (!given[2].missing()) range->step = index(given[2]);
  }
  if (range->step == 0) interpreter.Fail("ValueError", "range() arg 3 must not be zero");
  const int64_t limit = interpreter.limits().range;
  if (range->size() > limit)
    interpreter.Fail("OverflowError",
                     fmt::format("Range too big. The sandbox blocks ranges larger than MAX_RANGE ({}).", limit));
  return Value::FromObject(Kind::kRange, std::move(range));
}

// dict(mapping or pairs, name=value, ...)
std::shared_ptr<DictObject> MakeDict(Interpreter& interpreter, Arguments& args) {
  if (args.positional.size() > 1)
    interpreter.FailType(fmt::format("dict expected at most 1 argument, got {}", args.positional.size()));
  auto dict = std::make_shared<DictObject>();
  if (!args.positional.empty()) {
    const Value& source = args.positional[0];
    if (source.is(Kind::kDict)) {
      for (const auto& [key, value] : source.dict().entries()) dict->Set(key, value);
    } else {
      size_t index = 0;
      for (const Value& pair : interpreter.ToItems(source)) {
        if (!interpreter.CanIterate(pair))
          interpreter.FailType(
              fmt::format("cannot convert dictionary update sequence element #{} to a sequence", index));
        const std::vector<Value> items = interpreter.ToItems(pair);
        if (items.size() != 2)
          interpreter.Fail(
              "ValueError",
              fmt::format("dictionary update sequence element #{} has length {}; 2 is required", index, items.size()));
        dict->Set(interpreter.CheckKey(items[0]), items[1]);
        ++index;
      }
    }
  }
  for (const auto& [name, value] : args.named) dict->Set(name, value);
  interpreter.ChargeItems(dict->size());
  return dict;
}

Value CallDict(Interpreter& interpreter, const Value&, Arguments& args) {
  return Value::Dict(MakeDict(interpreter, args));
}

Value CallNamespace(Interpreter& interpreter, const Value&, Arguments& args) {
  const std::shared_ptr<DictObject> attributes = MakeDict(interpreter, args);
  for (const auto& [name, value] : attributes->entries())
    if (name.is_string() && name.str().starts_with('_'))
      interpreter.Fail("SecurityError",
                       fmt::format("Chat templates cannot store underscore-prefixed attributes on a namespace, but got "
                                   "'{}'. Please rename the attribute.",
                                   name.str()));
  return interpreter.NewNamespace(*attributes);
}

Value CallCycler(Interpreter& interpreter, const Value&, Arguments& args) {
  if (args.positional.empty()) interpreter.Fail("RuntimeError", "at least one item has to be provided");
  auto cycler = std::make_shared<CyclerObject>();
  for (const Value& item : args.positional) Contain(cycler.get(), item);
  cycler->items = std::move(args.positional);
  return Value::FromObject(Kind::kCycler, std::move(cycler));
}

Value CallJoiner(Interpreter& interpreter, const Value&, Arguments& args) {
  const std::vector<Value> given = Bind(interpreter, "joiner", args, {"sep"});
  auto joiner = std::make_shared<JoinerObject>();
  joiner->separator = given[0].missing() ? Value::String(", ") : given[0];
  Contain(joiner.get(), joiner->separator);
  return Value::FromObject(Kind::kJoiner, std::move(joiner));
}

Value CallRaise(Interpreter& interpreter, const Value&, Arguments& args) {
  const std::vector<Value> given = Bind(interpreter, "raise_exception", args, {"message"}, 1);
  interpreter.Fail("TemplateError", interpreter.ToText(given[0]).bytes());
}

LocalTime Now() {
  const auto now = std::chrono::system_clock::now();
  const time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto micro = std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count() % 1'000'000;
  tm parts{};
  localtime_r(&seconds, &parts);
  return {parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday,          parts.tm_hour,
          parts.tm_min,         parts.tm_sec,     static_cast<int>(micro)};
}

Value CallStrftime(Interpreter& interpreter, const Value&, Arguments& args) {
  const std::vector<Value> given = Bind(interpreter, "strftime_now", args, {"format"}, 1);
  const Text& format = TextArgument(interpreter, "strftime", given[0]);
  constexpr size_t kMaxFormat = 1024, kMaxResult = 16384;
  if (format.size() > kMaxFormat || format.bytes().find('\0') != std::string::npos)
    interpreter.FailLimit(fmt::format("a date format longer than {} bytes", kMaxFormat));
  const LocalTime now = interpreter.options().now ? *interpreter.options().now : Now();
  tm parts{};
  parts.tm_year = now.year - 1900;
  parts.tm_mon = now.month - 1;
  parts.tm_mday = now.day;
  parts.tm_hour = now.hour;
  parts.tm_min = now.minute;
  parts.tm_sec = now.second;
  timegm(&parts);  // fills in the day of the week and of the year
  // A time without a zone: %z and %Z are empty. %f is Python's own.
  std::string rewritten;
  const std::string& bytes = format.bytes();
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != '%' || i + 1 == bytes.size()) {
      rewritten += bytes[i];
      continue;
    }
    ++i;
    if (bytes[i] == 'f')
      rewritten += fmt::format("{:06}", now.microsecond);
    else if (bytes[i] != 'z' && bytes[i] != 'Z')
      rewritten += {'%', bytes[i]};
  }
  rewritten += '.';  // an empty result and a failure both return zero
  std::string result(kMaxResult, '\0');
  result.resize(strftime(result.data(), result.size(), rewritten.c_str(), &parts));
  if (result.empty() || !IsValidUtf8(result)) interpreter.Fail("ValueError", "Invalid format string");
  result.pop_back();
  return interpreter.NewString(Text(std::move(result), format.AllMarks()));
}

Value CallLipsum(Interpreter& interpreter, const Value&, Arguments&) {
  interpreter.FailUnsupported("function 'lipsum'");
}

constexpr MethodEntry kGlobals[] = {
    {"cycler", CallCycler},       {"dict", CallDict},
    {"joiner", CallJoiner},       {"lipsum", CallLipsum},
    {"namespace", CallNamespace}, {"raise_exception", CallRaise},
    {"range", CallRange},         {"strftime_now", CallStrftime},
};

}  // namespace

Value FindGlobal(std::string_view name) {
  for (const MethodEntry& entry : kGlobals) {
    if (entry.name != name) continue;
    auto object = std::make_shared<FunctionObject>();
    object->name = entry.name;
    object->call = entry.function;
    return Value::FromObject(Kind::kFunction, std::move(object));
  }
  return Value();
}

bool IsGlobalName(std::string_view name) {
  for (const MethodEntry& entry : kGlobals)
    if (entry.name == name) return true;
  return false;
}

}  // namespace octavo::text::jinja
