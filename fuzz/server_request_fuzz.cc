// Any bytes as the body of a request: what the engine would get, or an Error. The first byte chooses the route. What a
// model writes goes through the parser of answers too: however it is cut, no text is lost.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "octavo/base/error.h"
#include "octavo/engine/mock_service.h"
#include "octavo/server/chat_request.h"
#include "octavo/server/output_parser.h"
#include "octavo/text/tokenizer.h"

namespace {

using namespace octavo;

struct World {
  World() : tokenizer(text::MakeByteTokenizer()), service(*tokenizer), context(service, Options()) {}
  static server::ApiOptions Options() {
    server::ApiOptions options;
    options.templates.templates["default"] =
        "{% if tools %}{{ tools|tojson }}<tool_call>{% endif %}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}"
        "{% for c in m.tool_calls or [] %}{{ c.function|tojson }}{% endfor %}{% endfor %}{{ enable_thinking }}<think>";
    return options;
  }
  std::unique_ptr<text::Tokenizer> tokenizer;
  engine::MockService service;
  server::ModelContext context;
};

void ParseAnswer(std::string_view text, uint8_t first) {
  const auto form = static_cast<server::ToolForm>(first % 4);
  std::string content[2], reasoning[2], called[2];
  for (const size_t step : {size_t{1}, size_t{1} << 20}) {
    server::OutputParser parser({.tools = form, .reasoning = (first & 8) != 0, .names = {"f"}});
    const size_t which = step > 1;
    const auto add = [&](const server::OutputDelta& delta) {
      content[which] += delta.content;
      reasoning[which] += delta.reasoning;
      for (const server::ToolCall& piece : delta.calls) {
        if (!piece.name.empty()) called[which] += "\n" + piece.name + " ";
        called[which] += piece.arguments;
      }
    };
    for (size_t at = 0; at < text.size(); at += step) add(parser.Push(text.substr(at, step), {}));
    add(parser.Finish());
  }
  if (content[0] != content[1] || reasoning[0] != reasoning[1] || called[0] != called[1]) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const World world;
  if (size == 0) return 0;
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] >= 128) {
    ParseAnswer(body, data[0]);
    return 0;
  }
  try {
    const server::JsonValue json = server::ParseBody(body);
    const server::GenerationRequest request = data[0] % 2 == 0 ? server::ReadChatRequest(json, world.context)
                                                               : server::ReadCompletionRequest(json, world.context);
    for (const std::vector<int32_t>& prompt : request.prompts) {
      if (prompt.empty()) __builtin_trap();
      for (const int32_t id : prompt) {
        if (id < 0 || id >= world.tokenizer->vocabulary_size()) __builtin_trap();
      }
    }
  } catch (const Error&) {
  }
  return 0;
}
