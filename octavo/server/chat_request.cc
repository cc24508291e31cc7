#include "octavo/server/chat_request.h"

#include <algorithm>
#include <array>

#include "octavo/engine/validate.h"
#include "octavo/server/api_error.h"
#include "octavo/server/call_schema.h"
#include "octavo/text/template_json.h"

namespace octavo::server {
namespace {

using text::jinja::DictObject;
using text::jinja::Kind;
using text::jinja::Value;

constexpr size_t kMostMessages = 4096, kMostTools = 128;

enum class ToolChoice : uint8_t { kNone, kAuto, kRequired };

struct Tools {
  Value shown = Value::None();     // as the template gets them
  std::vector<std::string> names;  // in order
  std::vector<Value> parameters;   // schema of each, or none
  ToolChoice choice = ToolChoice::kNone;
  std::string chosen;     // the one that must be called; empty: any
  bool one_call = false;  // at most one in an answer
};

// Content as one text: a string, or text parts one under the other.
Value ReadContent(const Value& content, const std::string& where) {
  if (content.is_string() || content.none()) return content;
  if (!content.is(Kind::kList)) ThrowInvalid(where, "expected a string, null or a list of text parts");
  std::string joined;
  for (size_t i = 0; i < content.items().size(); ++i) {
    Fields part(content.items()[i], fmt::format("{}[{}]", where, i));
    const std::string type = part.Text("type").value_or("");
    if (type != "text") ThrowUnsupported(part.NameOf("type"), "this model takes text parts only");
    if (i > 0) joined += "\n";
    joined += part.Text("text").value_or("");
  }
  return Value::String(std::string_view(joined), text::jinja::kFromUser);
}

// Clients send the arguments of earlier calls as JSON in a string; templates print objects.
Value ReadToolCalls(const Value& calls, const std::string& where) {
  if (!calls.is(Kind::kList)) ThrowInvalid(where, "expected a list");
  std::vector<Value> result;
  for (const Value& call : calls.items()) {
    Fields outer(call, where);
    const Value* function = outer.Find("function");
    if (function == nullptr || !function->is(Kind::kDict)) ThrowInvalid(where, "every call needs a function");
    auto made = std::make_shared<DictObject>();
    for (const auto& entry : call.dict().entries()) made->Set(entry.first, entry.second);
    auto inner = std::make_shared<DictObject>();
    for (const auto& entry : function->dict().entries()) inner->Set(entry.first, entry.second);
    const Value* arguments = function->dict().Find("arguments");
    if (arguments != nullptr && arguments->is_string()) {
      try {
        const Value parsed = text::jinja::ParseJson(arguments->str());
        if (parsed.is(Kind::kDict)) inner->Set("arguments", parsed);
      } catch (const Error&) {  // stays a text
      }
    }
    made->Set("function", Value::Dict(inner));
    result.push_back(Value::Dict(made));
  }
  return Value::List(std::move(result));
}

Value ReadMessage(const Value& message, const LoadedTemplate& chat, const std::string& where) {
  Fields fields(message, where);
  const std::string role = fields.Text("role").value_or("");
  static constexpr std::array<std::string_view, 5> kRoles = {"system", "developer", "user", "assistant", "tool"};
  if (std::find(kRoles.begin(), kRoles.end(), role) == kRoles.end()) {
    ThrowInvalid(where + ".role", "expected system, developer, user, assistant or tool");
  }
  auto made = std::make_shared<DictObject>();
  for (const auto& entry : message.dict().entries()) {
    const std::string_view name = entry.first.str();
    Value value = entry.second;
    if (name == "role" && role == "developer" && !chat.developer) {
      value = Value::String(std::string_view("system"), text::jinja::kFromUser);
    } else if (name == "content") {
      value = ReadContent(value, where + ".content");
    } else if (name == "tool_calls" && !value.none()) {
      value = ReadToolCalls(value, where + ".tool_calls");
    } else if (value.none()) {
      continue;  // SDKs send back what they got, nulls and all
    }
    made->Set(entry.first, std::move(value));
  }
  const Value* content = made->Find("content");
  if (role != "assistant" && (content == nullptr || content->none())) {
    ThrowInvalid(where + ".content", "is missing");
  }
  // Templates test for text or join it: None would show as a word.
  if (content == nullptr || content->none())
    made->Set("content", Value::String(std::string_view(""), text::jinja::kFromUser));
  return Value::Dict(made);
}

Value ReadMessages(Fields& fields, const LoadedTemplate& chat) {
  const Value* messages = fields.Find("messages");
  if (messages == nullptr || !messages->is(Kind::kList) || messages->items().empty()) {
    ThrowInvalid("messages", "expected a list of at least one message");
  }
  if (messages->items().size() > kMostMessages) {
    ThrowInvalid("messages", fmt::format("{} messages, at most {} are taken", messages->items().size(), kMostMessages));
  }
  std::vector<Value> made;
  for (size_t i = 0; i < messages->items().size(); ++i) {
    made.push_back(ReadMessage(messages->items()[i], chat, fmt::format("messages[{}]", i)));
  }
  return Value::List(std::move(made));
}

void ReadToolChoice(Fields& fields, Tools& tools) {
  tools.choice = tools.names.empty() ? ToolChoice::kNone : ToolChoice::kAuto;
  const Value* choice = fields.Find("tool_choice");
  if (choice == nullptr) return;
  if (choice->is_string()) {
    if (choice->str() == "none") {
      tools.choice = ToolChoice::kNone;
    } else if (choice->str() == "required") {
      tools.choice = ToolChoice::kRequired;
    } else if (choice->str() != "auto") {
      ThrowInvalid("tool_choice", "expected none, auto, required or a function");
    }
  } else {
    Fields outer(*choice, "tool_choice");
    const Value* function = outer.Find("function");
    if (outer.Text("type").value_or("") != "function" || function == nullptr) {
      ThrowInvalid("tool_choice", "expected none, auto, required or a function");
    }
    tools.chosen = Fields(*function, "tool_choice.function").Text("name").value_or("");
    if (std::find(tools.names.begin(), tools.names.end(), tools.chosen) == tools.names.end()) {
      ThrowInvalid("tool_choice", "names a function that is not among the tools");
    }
    tools.choice = ToolChoice::kRequired;
  }
  if (tools.choice == ToolChoice::kRequired && tools.names.empty()) ThrowInvalid("tool_choice", "there are no tools");
}

Tools ReadTools(Fields& fields) {
  Tools tools;
  const Value* list = fields.Find("tools");
  if (list != nullptr) {
    if (!list->is(Kind::kList)) ThrowInvalid("tools", "expected a list");
    if (list->items().size() > kMostTools) {
      ThrowInvalid("tools", fmt::format("{} tools, at most {} are taken", list->items().size(), kMostTools));
    }
    for (size_t i = 0; i < list->items().size(); ++i) {
      Fields tool(list->items()[i], fmt::format("tools[{}]", i));
      if (tool.Text("type").value_or("") != "function") ThrowUnsupported(tool.NameOf("type"), "expected function");
      const Value* function = tool.Find("function");
      if (function == nullptr) ThrowInvalid(tool.NameOf("function"), "is missing");
      Fields inner(*function, tool.NameOf("function"));
      const std::string name = inner.Text("name").value_or("");
      if (name.empty() || name.size() > 256) ThrowInvalid(inner.NameOf("name"), "expected 1 to 256 characters");
      const Value* parameters = inner.Find("parameters");
      if (parameters != nullptr && !parameters->is(Kind::kDict)) {
        ThrowInvalid(inner.NameOf("parameters"), "expected a JSON schema of an object");
      }
      const Value* type = parameters == nullptr ? nullptr : parameters->dict().Find("type");
      if (type != nullptr && !(type->is_string() && type->str() == "object")) {
        const std::string where = inner.NameOf("parameters");
        throw ApiError(400, "invalid_schema", where,
                       fmt::format("{}.type: arguments are an object, expected \"object\"", where));
      }
      tools.names.push_back(name);
      tools.parameters.push_back(parameters == nullptr ? Value::None() : *parameters);
    }
    if (!tools.names.empty()) tools.shown = *list;
  }
  ReadToolChoice(fields, tools);
  if (tools.choice == ToolChoice::kNone) tools.shown = Value::None();
  tools.one_call = !fields.Bool("parallel_tool_calls", true);
  return tools;
}

// What a call that must be made may call.
std::vector<CallableTool> Callable(const Tools& tools) {
  std::vector<CallableTool> callable;
  for (size_t i = 0; i < tools.names.size(); ++i) {
    if (tools.chosen.empty() || tools.chosen == tools.names[i]) {
      callable.push_back({.name = tools.names[i],
                          .parameters = tools.parameters[i],
                          .place = fmt::format("tools[{}].function.parameters", i)});
    }
  }
  return callable;
}

text::TemplateVariables ReadVariables(Fields& fields, const LoadedTemplate& chat, const ModelContext& context) {
  text::TemplateVariables variables;
  if (const Value* given = fields.Find("chat_template_kwargs")) {
    if (!given->is(Kind::kDict)) ThrowInvalid("chat_template_kwargs", "expected an object");
    static constexpr std::array<std::string_view, 14> kReserved = {"messages",
                                                                   "tools",
                                                                   "documents",
                                                                   "add_generation_prompt",
                                                                   "continue_final_message",
                                                                   "chat_template",
                                                                   "tokenize",
                                                                   "conversation",
                                                                   "return_tensors",
                                                                   "return_dict",
                                                                   "padding",
                                                                   "truncation",
                                                                   "max_length",
                                                                   "tokenizer"};
    for (const auto& entry : given->dict().entries()) {
      const std::string name(entry.first.str());
      if (std::find(kReserved.begin(), kReserved.end(), name) != kReserved.end() || name.ends_with("_token") ||
          context.options().templates.special_tokens.contains(name)) {
        ThrowInvalid("chat_template_kwargs." + name, "is reserved");
      }
      variables[name] = entry.second;
    }
  }
  const std::vector<std::string>& known = chat.chat.variables();
  const bool takes_effort = std::find(known.begin(), known.end(), "reasoning_effort") != known.end();
  // A template that does not read it leaves the field among the ignored ones.
  if (takes_effort) {
    if (const std::optional<std::string> effort = fields.Text("reasoning_effort")) {
      static constexpr std::array<std::string_view, 6> kEfforts = {"none", "minimal", "low", "medium", "high", "xhigh"};
      if (std::find(kEfforts.begin(), kEfforts.end(), *effort) == kEfforts.end()) {
        ThrowInvalid("reasoning_effort", "expected none, minimal, low, medium, high or xhigh");
      }
      variables.try_emplace("reasoning_effort", Value::String(std::string_view(*effort), text::jinja::kFromUser));
    }
  }
  return variables;
}

text::Rendered Render(Fields& fields, const ModelContext& context, const Tools& tools, const LoadedTemplate& chat) {
  text::ChatInputs inputs;
  inputs.messages = ReadMessages(fields, chat);
  inputs.tools = tools.shown;
  inputs.special_tokens = context.options().templates.special_tokens;
  inputs.variables = ReadVariables(fields, chat, context);
  const bool goes_on = fields.Bool("continue_final_message", false);
  inputs.add_generation_prompt = fields.Bool("add_generation_prompt", !goes_on);
  if (goes_on) {
    if (inputs.add_generation_prompt) {
      ThrowInvalid("continue_final_message", "excludes add_generation_prompt=true");
    }
    const Value* role = inputs.messages.items().back().dict().Find("role");
    if (role->str() != "assistant") ThrowInvalid("continue_final_message", "the last message is not the assistant's");
    inputs.continue_field = "content";
  }
  try {
    return chat.chat.Render(inputs);
  } catch (const text::TemplateError& error) {
    throw ApiError(400, "template_error", "messages", error.message());
  }
}

bool EndsInThink(std::string_view prompt) {
  const size_t last = prompt.find_last_not_of(" \t\r\n");
  return last != std::string_view::npos && prompt.substr(0, last + 1).ends_with("<think>");
}

}  // namespace

text::Rendered RenderChatBody(Fields& fields, const ModelContext& context) {
  const Tools tools = ReadTools(fields);
  return Render(fields, context, tools, context.Template(!tools.shown.none()));
}

GenerationRequest ReadChatRequest(const JsonValue& body, const ModelContext& context) {
  Fields fields(body);
  GenerationRequest request;
  request.chat = true;
  ReadSharedFields(fields, context, request);
  if (fields.Bool("logprobs", false)) {
    request.logprobs = true;
    request.base.top_logprobs = static_cast<int>(fields.Int("top_logprobs", 0, 0, engine::kMaxTopLogprobs));
  } else if (fields.Int("top_logprobs", 0, 0, engine::kMaxTopLogprobs) > 0) {
    ThrowInvalid("top_logprobs", "only with logprobs=true");
  }
  const Tools tools = ReadTools(fields);
  const LoadedTemplate& chat = context.Template(!tools.shown.none());
  ReadResponseFormat(fields, context, request);
  if (tools.choice == ToolChoice::kRequired) {
    if (request.base.constraint != nullptr) ThrowUnsupported("response_format", "together with a required tool call");
    const std::vector<CallableTool> callable = Callable(tools);
    try {
      request.base.constraint = context.Constraint("tools", CallSchema(callable));
    } catch (const ApiError& error) {
      throw ApiError(error.status(), error.error_code(), error.param(), InRequest(callable, error.message()));
    }
    request.form.only_call = true;
  }
  if (tools.choice == ToolChoice::kAuto && chat.tools == ToolForm::kNone) {
    ThrowUnsupported("tools", "the model's chat template does not show tools; tool_choice can still require a call");
  }
  if (tools.choice == ToolChoice::kRequired && chat.tools == ToolForm::kNone) request.ignored.push_back("tools");
  if (tools.choice != ToolChoice::kNone) {
    request.form.tools = chat.tools;
    request.form.one_call = tools.one_call;
    request.form.names.insert(tools.names.begin(), tools.names.end());
    if (chat.tools == ToolForm::kMistral) request.form.tool_token = context.tokenizer().Find("[TOOL_CALLS]");
  }
  const text::Rendered rendered = Render(fields, context, tools, chat);
  context.RequireFits("messages", rendered.text.size(), request.model.context_length);
  const std::vector<text::TextPiece> pieces = rendered.Pieces();
  request.prompts.push_back(context.tokenizer().Encode(pieces, false));
  if (request.prompts[0].empty()) ThrowInvalid("messages", "the chat template made an empty prompt of them");
  request.form.reasoning = chat.reasoning && request.base.constraint == nullptr;
  request.form.reasoning_open = request.form.reasoning && EndsInThink(rendered.text);

  const int64_t context_length = request.model.context_length;
  const int64_t room = std::max<int64_t>(context_length - std::ssize(request.prompts[0]), 1);
  const int64_t usual = context.options().default_max_tokens;
  const int64_t otherwise = usual > 0 ? std::min(usual, room) : room;
  const int64_t older = fields.Int("max_tokens", otherwise, 1, context_length);
  if (fields.Has("max_completion_tokens")) request.limit_field = "max_completion_tokens";
  request.base.max_new_tokens = fields.Int("max_completion_tokens", older, 1, context_length);
  FinishFields(fields, context, request);
  return request;
}

}  // namespace octavo::server
