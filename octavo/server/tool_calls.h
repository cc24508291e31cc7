// Calls of tools in what a model writes, in the forms that chat templates teach: Hermes and Qwen tags, Llama 3's bare
// JSON, Mistral's list; here as whole texts, in call_stream.h while they are written. Used by output_parser.h.
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

// Joins pieces to the calls before them: one with a name is a new call, one without has more arguments of the last.
void JoinCalls(std::vector<ToolCall>& calls, std::vector<ToolCall>&& pieces);

enum class ToolForm : uint8_t {
  kNone,
  kTagged,     // <tool_call>{"name": …, "arguments": …}</tool_call>, any number of them
  kPlainJson,  // the answer begins with {"name": …, "parameters": …}
  kMistral,    // [TOOL_CALLS][{"name": …, "arguments": …}, …] or [TOOL_CALLS]name[ARGS]{…}
};

// The form that a template asks for; kNone when it does not know tools.
ToolForm ToolFormOf(std::string_view template_source);

// One call or a list of calls as JSON; nothing when the text is anything else. "arguments" or "parameters" may be an
// object or a text that holds one.
std::optional<std::vector<ToolCall>> ParseCallJson(std::string_view text);

}  // namespace octavo::server
