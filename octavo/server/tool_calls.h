// Calls of tools in what a model writes, in the forms that chat templates teach: Hermes and Qwen tags, Llama 3's bare
// JSON, Mistral's list. Used by output_parser.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace octavo::server {

struct ToolCall {
  std::string name;
  std::string arguments;  // JSON text
};

enum class ToolForm : uint8_t {
  kNone,
  kTagged,     // <tool_call>{"name": …, "arguments": …}</tool_call>, any number of them
  kPlainJson,  // the whole answer is {"name": …, "parameters": …}
  kMistral,    // [TOOL_CALLS][{"name": …, "arguments": …}, …] or [TOOL_CALLS]name[ARGS]{…}
};

// The form that a template asks for; kNone when it does not know tools.
ToolForm ToolFormOf(std::string_view template_source);

// One call or a list of calls as JSON; nothing when the text is anything else. "arguments" or "parameters" may be an
// object or a text that holds one.
std::optional<std::vector<ToolCall>> ParseCallJson(std::string_view text);

// The call that a constraint made the model write: {"name": …, "arguments": any value that its schema allows}. Nothing
// when the text was cut.
std::optional<ToolCall> ParseForcedCall(std::string_view text);

// What follows Mistral's marker.
std::optional<std::vector<ToolCall>> ParseMistralCalls(std::string_view text);

}  // namespace octavo::server
