#include "octavo/text/chat_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "octavo/text/template_compare.h"
#include "octavo/text/template_interpreter.h"
#include "octavo/text/template_lexer.h"
#include "octavo/text/template_methods.h"
#include "octavo/text/template_parser.h"
#include "octavo/text/template_repr.h"
#include "octavo/text/template_scope.h"
#include "octavo/text/template_unicode.h"
#include "octavo/text/tokenizer.h"

namespace octavo::text {
namespace {

using jinja::DictObject;
using jinja::Kind;
using jinja::Text;
using jinja::Value;

constexpr std::array<std::string_view, 9> kKnownRoles = {"system",   "developer", "user",  "assistant",   "tool",
                                                         "function", "ipython",   "model", "tool_results"};
constexpr std::array<std::string_view, 3> kReasoningFields = {"reasoning_content", "thinking", "reasoning"};
// Appended to the message to continue, then found again in the text, which ends there.
constexpr std::string_view kContinueTag = "CONTINUE_FINAL_MESSAGE_TAG ";

[[noreturn]] void Fail(const char* kind, const std::string& detail) {
  throw TemplateError(ErrorCode::kUsage, kind, detail, 0);
}

Rendered ToRendered(const Text& text) {
  Rendered rendered;
  rendered.text = text.bytes();
  for (const Text::Run& run : text.Runs()) {
    const Origin origin = (run.marks & jinja::kFromUser) != 0 ? Origin::kUser : Origin::kTemplate;
    if (!rendered.spans.empty() && rendered.spans.back().origin == origin)
      rendered.spans.back().end = run.end;
    else
      rendered.spans.push_back({run.begin, run.end, origin});
    if ((run.marks & jinja::kGenerated) == 0) continue;
    if (!rendered.generated.empty() && rendered.generated.back().end == run.begin)
      rendered.generated.back().end = run.end;
    else
      rendered.generated.push_back({run.begin, run.end});
  }
  return rendered;
}

// A message as templates expect it: a known role counts as template text, and reasoning has all its names.
Value PrepareMessage(const Value& message) {
  if (!message.is(Kind::kDict))
    Fail("TypeError", fmt::format("Chat messages should be dicts, dataclasses or pydantic models, but got {}.",
                                  jinja::Repr(message).bytes()));
  const DictObject& source = message.dict();
  Value reasoning;
  for (const std::string_view field : kReasoningFields) {
    const Value* value = source.Find(field);
    if (reasoning.missing() && value != nullptr && !value->none()) reasoning = *value;
  }
  auto prepared = std::make_shared<DictObject>();
  if (!reasoning.missing()) prepared->Set("thinking", reasoning);
  for (const auto& [key, value] : source.entries()) {
    const bool known_role = key.is_string() && key.str() == "role" && value.is_string() &&
                            std::find(kKnownRoles.begin(), kKnownRoles.end(), value.str()) != kKnownRoles.end();
    prepared->Set(key, known_role ? Value::String(value.str()) : value);
  }
  if (!reasoning.missing()) prepared->Set("reasoning_content", reasoning);
  return Value::Dict(std::move(prepared));
}

Value WithTag(const Value& text) {
  if (!text.is_string())
    Fail("TypeError", fmt::format("can only concatenate str (not \"{}\") to str", jinja::TypeName(text)));
  Text tagged = text.text();
  tagged.Append(kContinueTag, jinja::kFromUser);
  return Value::String(std::move(tagged));
}

Value CopyWith(const Value& dict, std::string_view key, const Value& value) {
  auto copy = std::make_shared<DictObject>(dict.dict());
  copy->Set(key, value);
  return Value::Dict(std::move(copy));
}

// Content in parts: the last one that has text is continued.
Value TagLastPart(const Value& parts, Text* continued) {
  std::vector<Value> items = parts.items();
  for (size_t i = items.size(); i-- > 0;) {
    const Value* text = items[i].is(Kind::kDict) ? items[i].dict().Find("text") : nullptr;
    if (text == nullptr) continue;
    const Value tagged = WithTag(*text);
    *continued = text->text();
    items[i] = CopyWith(items[i], "text", tagged);
    return Value::List(std::move(items));
  }
  Fail("ValueError", "continue_final_message is set but we could not find any text to continue in the final message!");
}

// Puts the tag at the end of `field` of the last message; returns the text that is continued.
Text TagLastMessage(std::vector<Value>* messages, const std::string& field, std::string_view source) {
  Value& last = messages->back();
  const Value* found = last.dict().Find(field);
  if (found == nullptr || found->none())
    Fail("ValueError",
         fmt::format("continue_final_message is set but the final message has no \"{}\" to continue!", field));
  const Value content = *found;
  std::vector<std::string_view> fields = {field};
  if (std::find(kReasoningFields.begin(), kReasoningFields.end(), field) != kReasoningFields.end()) {
    fields.clear();
    for (const std::string_view name : kReasoningFields) {
      const Value* value = last.dict().Find(name);
      if (value != nullptr && jinja::Equal(*value, content)) fields.push_back(name);
    }
  }
  const auto in_source = [source](std::string_view name) { return source.find(name) != std::string_view::npos; };
  if (std::none_of(fields.begin(), fields.end(), in_source))
    Fail("ValueError", fmt::format("continue_final_message is set to \"{}\" but this is not an accepted field in the "
                                   "chat_template",
                                   field));
  Text continued;
  if (content.is_sequence()) {
    last = CopyWith(last, field, TagLastPart(content, &continued));
    return continued;
  }
  const Value tagged = WithTag(content);
  for (const std::string_view name : fields) last = CopyWith(last, name, tagged);
  return content.text();
}

// Cuts the text where the tag stands.
Text CutAtTag(const Text& text, const Text& continued) {
  const std::string_view bare = kContinueTag.substr(0, kContinueTag.size() - 1);
  const size_t at = text.bytes().rfind(bare);
  const Text stripped = jinja::Strip(continued, Value(), jinja::Side::kBoth);
  if (at == std::string::npos || text.bytes().find(stripped.bytes()) == std::string::npos) {
    Fail("ValueError",
         fmt::format("continue_final_message is set but the final message does not appear in the chat after applying "
                     "the chat template! This can happen if the chat template deletes portions of the final message. "
                     "Please verify the chat template and final message in your chat to ensure they are compatible."
                     "Final message to continue: {}\nRendered chat:\n{}",
                     stripped.bytes(), text.bytes()));
  }
  const Text cut = text.Slice(0, at);
  const bool spacing_kept = text.bytes().compare(at, kContinueTag.size(), kContinueTag) == 0;
  return spacing_kept ? cut : jinja::Strip(cut, Value(), jinja::Side::kRight);
}

void CheckDicts(const Value& list, const char* kind, const char* message) {
  if (list.none()) return;
  const auto is_dict = [](const Value& item) { return item.is(Kind::kDict); };
  if (!list.is_sequence() || !std::all_of(list.items().begin(), list.items().end(), is_dict)) Fail(kind, message);
}

Text RunProgram(const jinja::Program& program, const TemplateVariables& variables, const RenderOptions& options) {
  return jinja::Interpreter(program, variables, options).Run();
}

}  // namespace

std::vector<TextPiece> Rendered::Pieces() const {
  std::vector<TextPiece> pieces;
  for (const OriginSpan& span : spans)
    pieces.push_back(
        {std::string_view(text).substr(span.begin, span.end - span.begin), span.origin == Origin::kTemplate});
  return pieces;
}

ChatTemplate::ChatTemplate() = default;
ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

ChatTemplate ChatTemplate::Parse(std::string_view source) {
  if (source.size() > jinja::kMaxTemplateBytes)
    throw TemplateError(
        ErrorCode::kFile, "LimitError",
        fmt::format("{} bytes of source; at most {} are allowed", source.size(), jinja::kMaxTemplateBytes), 0);
  if (!jinja::IsValidUtf8(source))
    throw TemplateError(ErrorCode::kFile, "UnicodeDecodeError", "the source is not valid UTF-8", 0);
  ChatTemplate result;
  result.source_ = std::string(source);
  auto program = std::make_unique<jinja::Program>();
  program->source = jinja::NormalizeSource(source);
  program->body = jinja::Parser(program->source).Parse();
  jinja::ResolveScopes(program.get());
  result.program_ = std::move(program);
  return result;
}

const std::vector<std::string>& ChatTemplate::variables() const { return program_->inputs; }
bool ChatTemplate::has_generation() const { return program_->has_generation; }

Rendered ChatTemplate::RenderVariables(const TemplateVariables& variables, const RenderOptions& options) const {
  return ToRendered(RunProgram(*program_, variables, options));
}

Rendered ChatTemplate::Render(const ChatInputs& inputs, const RenderOptions& options) const {
  if (!inputs.messages.is_sequence()) Fail("TypeError", "messages must be a list of objects");
  if (inputs.messages.items().empty())
    Fail("ValueError", "Cannot apply chat template to an empty conversation. Provide at least one message.");
  if (!inputs.continue_field.empty() && inputs.add_generation_prompt)
    Fail(
        "ValueError",
        "continue_final_message and add_generation_prompt are not compatible. Use continue_final_message when you want "
        "the model to continue the final message, and add_generation_prompt when you want to add a header that will "
        "prompt it to start a new assistant message instead.");
  CheckDicts(
      inputs.tools, "ValueError",
      "Tools should either be a JSON schema, or a callable function with type hints and a docstring suitable for "
      "auto-conversion to a schema.");
  CheckDicts(inputs.documents, "TypeError", "Documents should be a list of dicts with 'title' and 'text' keys!");

  std::vector<Value> messages;
  messages.reserve(inputs.messages.items().size());
  for (const Value& message : inputs.messages.items()) messages.push_back(PrepareMessage(message));
  Text continued;
  if (!inputs.continue_field.empty()) continued = TagLastMessage(&messages, inputs.continue_field, source_);

  TemplateVariables variables;
  for (const auto& [name, token] : inputs.special_tokens) {
    if (!jinja::IsValidUtf8(token)) Fail("UnicodeDecodeError", fmt::format("{} is not valid UTF-8", name));
    variables[name] = Value::String(std::string_view(token));
  }
  variables["messages"] = Value::List(std::move(messages));
  variables["tools"] = inputs.tools;
  variables["documents"] = inputs.documents;
  variables["add_generation_prompt"] = Value::Bool(inputs.add_generation_prompt);
  for (const auto& [name, value] : inputs.variables)
    if (!variables.emplace(name, value).second)
      Fail("ValueError", fmt::format("the variable '{}' cannot be set: it is an input of its own", name));

  Text text = RunProgram(*program_, variables, options);
  if (!inputs.continue_field.empty()) text = CutAtTag(text, continued);
  return ToRendered(text);
}

}  // namespace octavo::text
