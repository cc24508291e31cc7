// Any bytes as a chat template: parsing and rendering end in text or in an Error, within the limits.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "octavo/base/error.h"
#include "octavo/text/chat_template.h"

namespace {

octavo::text::ChatInputs MakeInputs() {
  octavo::text::ChatInputs inputs;
  inputs.messages = octavo::text::jinja::ParseJson(
      R"([{"role": "system", "content": "be <|brief|>"}, {"role": "user", "content": "Zürich 日本 😀\n x"},
          {"role": "assistant", "content": null, "tool_calls": [{"id": "c1", "function": {"name": "f",
          "arguments": {"a": [1, 2.5, true, null], "b": {"c": "d"}}}}]}, {"role": "tool", "content": "{\"a\": 1}"}])");
  inputs.tools =
      octavo::text::jinja::ParseJson(R"([{"type": "function", "function": {"name": "f", "parameters": {}}}])");
  inputs.special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  inputs.add_generation_prompt = true;
  return inputs;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const octavo::text::ChatInputs inputs = MakeInputs();
  octavo::text::RenderOptions options;
  options.limits.steps = 20'000;  // many small runs find more than few long ones
  options.limits.output_bytes = size_t{1} << 20;
  options.now = octavo::text::LocalTime{2026, 1, 15, 12, 34, 56, 0};
  try {
    const auto parsed = octavo::text::ChatTemplate::Parse({reinterpret_cast<const char*>(data), size});
    const octavo::text::Rendered rendered = parsed.Render(inputs, options);
    size_t end = 0;
    for (const octavo::text::OriginSpan& span : rendered.spans) {
      if (span.begin != end || span.end <= span.begin) __builtin_trap();
      end = span.end;
    }
    if (end != rendered.text.size() || end > options.limits.output_bytes) __builtin_trap();
  } catch (const octavo::Error&) {
  }
  return 0;
}
