// Any bytes as the JSON of a conversation, through templates that use most of the language: text or an Error, and no
// byte of user text that counts as the template's. The first byte chooses the template.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "octavo/base/error.h"
#include "octavo/text/chat_template.h"

namespace {

using octavo::text::ChatTemplate;

// No template writes this character: where it appears, a user wrote it.
constexpr char kUserOnly = '~';

std::array<ChatTemplate, 4> MakeTemplates() {
  return {
      ChatTemplate::Parse(
          "{% for m in messages %}{{ '<|' + m['role'] + '|>\n' + m['content'] + eos_token }}{% endfor %}"),
      ChatTemplate::Parse(
          "{% set ns = namespace(last=-1) %}{% for m in messages[::-1] %}{% if m.role == 'user' and ns.last < 0 "
          "%}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}{% for m in messages %}{% if m.content is "
          "string %}{{ m.content|trim }}{% elif m.content is mapping %}{{ m.content|dictsort }}{% elif m.content "
          "is iterable %}{% for p in m.content %}{{ p.text or p['type'] }}{% endfor %}{% endif %}{% for c in "
          "m.tool_calls or [] %}{{ c.function.name }}{{ c.function.arguments|tojson(indent=2) }}{% endfor %}{% "
          "endfor %}{{ ns.last }}"),
      ChatTemplate::Parse(
          "{% macro show(v, depth=0) %}{% if v is mapping %}{ {%- for k, x in v|items %}{{ k|string|upper }}: {{ "
          "show(x, depth + 1) }}{{ ', ' if not loop.last }}{% endfor -%} }{% elif v is string %}{{ v.split('a')|join('"
          "-')|replace('b', 'c')|title }}{% elif v is iterable %}{% for x in v %}{{ show(x, depth + 1) }}{% endfor "
          "%}{% else %}{{ v|string }}{% endif %}{% endmacro %}{{ show(messages) }}"),
      ChatTemplate::Parse(
          "{% for m in messages|selectattr('content', 'defined')|list %}{% generation %}{{ '%s: %-8s' % (m.role, "
          "m.content) }}{{ '{:>4}'.format(m.n|default(1)) }}{{ m.content[1:-1]|e }}{{ m|tojson }}{{ m }}{% "
          "endgeneration %}{% endfor %}{{ messages|map(attribute='role')|unique|sort|join(',') }}")};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::array<ChatTemplate, 4> templates = MakeTemplates();
  if (size == 0) return 0;
  octavo::text::RenderOptions options;
  options.limits.steps = 100'000;
  try {
    octavo::text::ChatInputs inputs;
    inputs.messages = octavo::text::jinja::ParseJson({reinterpret_cast<const char*>(data) + 1, size - 1});
    inputs.special_tokens["eos_token"] = "</s>";
    const octavo::text::Rendered rendered = templates[data[0] % templates.size()].Render(inputs, options);
    for (const octavo::text::OriginSpan& span : rendered.spans) {
      if (span.origin == octavo::text::Origin::kUser) continue;
      const std::string_view piece = std::string_view(rendered.text).substr(span.begin, span.end - span.begin);
      if (piece.find(kUserOnly) != std::string_view::npos) __builtin_trap();
    }
  } catch (const octavo::Error&) {
  }
  return 0;
}
