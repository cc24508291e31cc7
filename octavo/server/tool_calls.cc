#include "octavo/server/tool_calls.h"

#include "octavo/base/error.h"
#include "octavo/text/template_json.h"
#include "octavo/text/template_repr.h"

namespace octavo::server {
namespace {

using text::jinja::Kind;
using text::jinja::Value;

constexpr std::string_view kSpace = " \t\r\n";

std::string_view Trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

std::optional<Value> Parse(std::string_view text) {
  try {
    return text::jinja::ParseJson(text, text::jinja::kFromUser, {});
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::optional<std::string> JsonOf(const Value& value) {
  text::jinja::Text json;
  if (text::jinja::ToJson(value, {}, &json)) return std::nullopt;
  return json.bytes();
}

std::optional<ToolCall> CallOf(const Value& value) {
  if (!value.is(Kind::kDict)) return std::nullopt;
  const Value* object = &value;
  if (const Value* function = value.dict().Find("function"); function != nullptr && function->is(Kind::kDict)) {
    object = function;
  }
  const Value* name = object->dict().Find("name");
  const Value* arguments = object->dict().Find("arguments");
  if (arguments == nullptr) arguments = object->dict().Find("parameters");
  if (name == nullptr || !name->is_string() || name->str().empty() || arguments == nullptr) return std::nullopt;
  ToolCall call{.name = std::string(name->str()), .arguments = {}};
  if (arguments->is_string()) {
    const std::optional<Value> inner = Parse(arguments->str());
    if (!inner || !inner->is(Kind::kDict)) return std::nullopt;
    call.arguments = arguments->str();
    return call;
  }
  if (!arguments->is(Kind::kDict)) return std::nullopt;
  const std::optional<std::string> json = JsonOf(*arguments);
  if (!json) return std::nullopt;
  call.arguments = *json;
  return call;
}

}  // namespace

void JoinCalls(std::vector<ToolCall>& calls, std::vector<ToolCall>&& pieces) {
  for (ToolCall& piece : pieces) {
    if (!piece.name.empty()) {
      calls.push_back(std::move(piece));
    } else {
      calls.back().arguments += piece.arguments;
    }
  }
}

ToolForm ToolFormOf(std::string_view source) {
  if (source.find("tools") == std::string_view::npos) return ToolForm::kNone;
  if (source.find("<tool_call>") != std::string_view::npos) return ToolForm::kTagged;
  if (source.find("[TOOL_CALLS]") != std::string_view::npos) return ToolForm::kMistral;
  return ToolForm::kPlainJson;
}

std::optional<std::vector<ToolCall>> ParseCallJson(std::string_view text) {
  text = Trim(text);
  std::vector<ToolCall> calls;
  if (const std::optional<Value> whole = Parse(text)) {
    const bool list = whole->is(Kind::kList);
    for (size_t i = 0; i < (list ? whole->items().size() : 1); ++i) {
      std::optional<ToolCall> call = CallOf(list ? whole->items()[i] : *whole);
      if (!call) return std::nullopt;
      calls.push_back(std::move(*call));
    }
  } else {  // Llama 3 writes several as {…}; {…}
    while (!text.empty()) {
      // The end of a call is a semicolon after which the rest is calls again; inside a string it is not.
      size_t end = text.find(';');
      std::optional<ToolCall> call;
      for (; !call; end = text.find(';', end + 1)) {
        const std::string_view part = text.substr(0, end);
        if (const std::optional<Value> value = Parse(part)) call = CallOf(*value);
        if (end == std::string_view::npos) break;
        if (call) break;
      }
      if (!call) return std::nullopt;
      calls.push_back(std::move(*call));
      text = end == std::string_view::npos ? std::string_view() : Trim(text.substr(end + 1));
      if (calls.size() > 64) return std::nullopt;
    }
  }
  if (calls.empty()) return std::nullopt;
  return calls;
}

}  // namespace octavo::server
