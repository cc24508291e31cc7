// Hostile templates and inputs: an error within the limits, never a crash or a hang.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "octavo/text/chat_template.h"

namespace octavo::text {
namespace {

std::string Repeat(std::string_view text, int count) {
  std::string result;
  for (int i = 0; i < count; ++i) result += text;
  return result;
}

// The kind of the error that rendering ends with, or "rendered".
std::string KindOf(const std::string& source, const RenderLimits& limits = {}) {
  try {
    RenderOptions options;
    options.limits = limits;
    TemplateVariables variables;
    variables["user"] = jinja::ParseJson(R"({"text": "aaaaaaaaaaaaaaaa", "list": [1, 2, 3, 4, 5, 6, 7, 8]})");
    ChatTemplate::Parse(source).RenderVariables(variables, options);
    return "rendered";
  } catch (const TemplateError& error) {
    return error.kind();
  }
}

TEST(TemplateLimits, StopEndlessWork) {
  EXPECT_EQ(KindOf("{{ range(10**9) }}"), "OverflowError");
  EXPECT_EQ(KindOf("{% for i in range(10**9) %}{% endfor %}"), "OverflowError");
  EXPECT_EQ(KindOf("{% for i in range(-9223372036854775807, 9223372036854775807) %}{% endfor %}"), "OverflowError");
  EXPECT_EQ(KindOf("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"), "LimitError");
  EXPECT_EQ(KindOf("{% for i in range(99999) %}{% for j in range(99999) %}x{% endfor %}{% endfor %}"), "LimitError");
  EXPECT_EQ(KindOf("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"), "LimitError");
  EXPECT_EQ(KindOf("{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{{ f() }}{% endmacro %}{{ f() }}"),
            "LimitError");
  EXPECT_EQ(KindOf("{% macro f() %}{{ caller }}{% call f() %}{% endcall %}{% endmacro %}{{ f() }}"), "LimitError");
  EXPECT_EQ(KindOf("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}"), "LimitError");
  EXPECT_EQ(KindOf("{% macro f(x) %}{% if x > 0 %}{{ f(x - 1) }}{{ f(x - 1) }}{% endif %}{% endmacro %}{{ f(60) }}"),
            "LimitError");
}

TEST(TemplateLimits, StopLargeValues) {
  EXPECT_EQ(KindOf("{{ 'a' * 10**12 }}"), "LimitError");
  EXPECT_EQ(KindOf("{{ 'a' * 9000000 }}"), "LimitError");
  RenderLimits patient;  // only the size is tested here, not the speed of the machine
  patient.processor_time = std::chrono::minutes(1);
  EXPECT_EQ(KindOf("{{ ('a' * 8000000)|length }}", patient), "rendered");
  EXPECT_EQ(KindOf("{{ [0] * 10**12 }}"), "LimitError");
  EXPECT_EQ(KindOf("{{ ((0,) * 10**9)|length }}"), "LimitError");
  EXPECT_EQ(KindOf("{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}"),
            "LimitError");
  EXPECT_EQ(KindOf("{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}"),
            "LimitError");
  EXPECT_EQ(KindOf("{% for i in range(2000) %}{{ 'a' * 8000 }}{% endfor %}"), "LimitError");
  EXPECT_EQ(KindOf("{{ ('a' * 4000)|replace('a', 'b' * 4000) }}"), "LimitError");
  EXPECT_EQ(KindOf("{{ range(90000)|join('x' * 1000) }}"), "LimitError");
  EXPECT_EQ(KindOf("{{ 'a'.center(10**10) }}"), "LimitError");
  EXPECT_EQ(KindOf("{{ '%10000000000s' % 'a' }}"), "LimitError");
  EXPECT_EQ(KindOf("{{ '{:10000000000}'.format('a') }}"), "LimitError");
  EXPECT_EQ(KindOf("{{ '%.1000000f' % 1.5 }}"), "LimitError");
  EXPECT_EQ(KindOf("{{ ('\\t' * 100)|string }}{{ ('\\t' * 4000000).expandtabs(60000) }}"), "LimitError");
  EXPECT_EQ(KindOf("{{ ('a\\n' * 4000)|indent('x' * 4000) }}"), "LimitError");
  EXPECT_EQ(KindOf("{{ [1]|batch(10**9, 0)|list }}"), "LimitError");
  EXPECT_EQ(KindOf("{{ 9223372036854775807 + 1 }}"), "OverflowError");
  EXPECT_EQ(KindOf("{{ 10**100 }}"), "OverflowError");
  EXPECT_EQ(KindOf("{{ strftime_now('%Y' * 1000) }}"), "LimitError");
  EXPECT_EQ(KindOf("{{ strftime_now('%9999999d') }}"), "ValueError");
}

TEST(TemplateLimits, StopSharedStructures) {
  const std::string doubled =
      "{% set ns = namespace(x=[1]) %}{% for i in range(100) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}";
  EXPECT_EQ(KindOf(doubled), "rendered");
  EXPECT_EQ(KindOf(doubled + "{{ ns.x }}"), "LimitError");
  EXPECT_EQ(KindOf(doubled + "{{ ns.x|tojson }}"), "LimitError");
  EXPECT_EQ(KindOf(doubled + "{% set y = ns.x %}" + doubled + "{{ y == ns.x }}"), "LimitError");
  EXPECT_EQ(
      KindOf("{% set ns = namespace(x=(1,)) %}{% for i in range(100) %}{% set ns.x = (ns.x, ns.x) %}{% endfor %}{{ "
             "{ns.x: 1} }}"),
      "LimitError");
  for (const char* step :
       {"[ns.x]", "(ns.x,)", "{'a': ns.x}", "ns.x|map('list')", "ns.x|select('none')", "{}[[ns.x]]", "[ns.x].index",
        "[]|batch(2, ns.x)", "cycler(ns.x)", "joiner(ns.x)", "{'a': ns.x}.items()"}) {
    const std::string kind = KindOf(fmt::format(
        "{{% set ns = namespace(x=[]) %}}{{% for i in range(50000) %}}{{% set ns.x = {} %}}{{% endfor %}}", step));
    EXPECT_EQ(kind, "LimitError") << step;
  }
  RenderLimits patient;  // leaks and deep ends are looked for, not the speed of the machine
  patient.processor_time = std::chrono::minutes(1);
  // Cycles through what can be written to: nothing to find here but leaks, which the sanitizer reports.
  EXPECT_EQ(KindOf("{% set ns = namespace() %}{% set ns.x = [ns] %}{{ ns }}", patient), "rendered");
  EXPECT_EQ(KindOf("{% set ns = namespace() %}{% macro f() %}{{ ns }}{% endmacro %}{% set ns.f = f %}", patient),
            "rendered");
  EXPECT_EQ(
      KindOf("{% macro f() %}{% for x in [1, 2] if x %}{{ loop.changed(loop) }}{% endfor %}{% endmacro %}{{ f() }}",
             patient),
      "rendered");
  EXPECT_EQ(
      KindOf("{% set ns = namespace(x=1) %}{% for i in range(20000) %}{% set n2 = namespace(x=ns.x) %}{% set ns.x = n2 "
             "%}{% endfor %}",
             patient),
      "rendered");
  EXPECT_EQ(KindOf("{% set ns = namespace(f=1) %}{% macro g(h) %}{% macro k() %}{{ h }}{% endmacro %}{% set ns.f = k "
                   "%}{% endmacro %}{% for i in range(10000) %}{{ g(ns.f) }}{% endfor %}",
                   patient),
            "rendered");
}

TEST(TemplateLimits, StopDeepSources) {
  EXPECT_EQ(KindOf(Repeat("{% if 1 %}", 10000) + Repeat("{% endif %}", 10000)), "LimitError");
  EXPECT_EQ(KindOf("{{ " + Repeat("(", 10000) + "1" + Repeat(")", 10000) + " }}"), "LimitError");
  EXPECT_EQ(KindOf("{{ " + Repeat("[", 10000) + Repeat("]", 10000) + " }}"), "LimitError");
  EXPECT_EQ(KindOf("{{ " + Repeat("not ", 10000) + "1 }}"), "LimitError");
  EXPECT_EQ(KindOf("{{ " + Repeat("-", 10000) + "1 }}"), "LimitError");
  EXPECT_EQ(KindOf("{{ 1" + Repeat(" + 1", 10000) + " }}"), "LimitError");
  EXPECT_EQ(KindOf("{{ x" + Repeat(".a", 10000) + " }}"), "LimitError");
  EXPECT_EQ(KindOf("{{ x" + Repeat("|upper", 10000) + " }}"), "LimitError");
  EXPECT_EQ(KindOf("{{ x" + Repeat("(x", 10000) + Repeat(")", 10000) + " }}"), "LimitError");
  EXPECT_EQ(KindOf("{{ 1" + Repeat(" if 1 else 1", 10000) + " }}"), "LimitError");
  EXPECT_EQ(KindOf("{{ '" + Repeat("a", 300000) + "' }}"), "LimitError");
  EXPECT_EQ(KindOf("{{ 1" + Repeat(" + 1", 300) + " }}"), "rendered");
  EXPECT_EQ(KindOf(Repeat("{% if 1 %}", 60) + "x" + Repeat("{% endif %}", 60)), "rendered");
  // Deep blocks in deep macros: the stack itself is watched.
  EXPECT_EQ(KindOf("{% macro f(n) %}" + Repeat("{% if 1 %}", 50) + "{{ [[[[[[[[[[f(n + 1)]]]]]]]]]] }}" +
                   Repeat("{% endif %}", 50) + "{% endmacro %}{{ f(0) }}"),
            "LimitError");
}

TEST(TemplateLimits, StopSlowStrings) {
  RenderLimits limits;
  limits.processor_time = std::chrono::minutes(1);
  const std::string big = "{% set a = 'a' * 4000000 %}";
  EXPECT_EQ(KindOf(big + "{{ (('a' * 2000000) + 'b') in a }}", limits), "rendered");
  EXPECT_EQ(KindOf(big + "{{ a.rfind('b' + 'a' * 2000000) }}", limits), "rendered");
  EXPECT_EQ(KindOf(big + "{{ a.strip('b' * 2000000)|length }}", limits), "rendered");
  EXPECT_EQ(KindOf(big + "{% for i in range(99999) %}{% if 'b' in a %}{% endif %}{% endfor %}"), "LimitError");
  EXPECT_EQ(KindOf(big + "{% for i in range(99999) %}{% set x = a|length %}{% endfor %}"), "LimitError");
  EXPECT_EQ(KindOf(big + "{% for i in range(99999) %}{% set x = a == a ~ '' %}{% endfor %}"), "LimitError");
  EXPECT_EQ(KindOf("{% set l = range(99999)|list %}{% for i in range(99999) %}{% if -1 in l %}{% endif %}{% endfor %}"),
            "LimitError");
  EXPECT_EQ(KindOf("{% set l = range(99999)|list %}{% for i in range(99999) %}{% set x = l|sort %}{% endfor %}"),
            "LimitError");
}

TEST(TemplateLimits, KeepTheSandbox) {
  EXPECT_EQ(KindOf("{{ ''.__class__.__mro__[1].__subclasses__() }}"), "SecurityError");
  EXPECT_EQ(KindOf("{{ user.__class__() }}"), "SecurityError");
  EXPECT_EQ(KindOf("{{ user['__class__']() }}"), "SecurityError");
  EXPECT_EQ(KindOf("{{ '{0.__class__}'.format(1) }}"), "rendered");
  EXPECT_EQ(KindOf("{{ '{0.__class__.x}'.format(1) }}"), "SecurityError");
  EXPECT_EQ(KindOf("{{ user|attr('__init__')() }}"), "SecurityError");
  EXPECT_EQ(KindOf("{{ user.list.append(9) }}"), "SecurityError");
  EXPECT_EQ(KindOf("{{ user.list.pop() }}"), "SecurityError");
  EXPECT_EQ(KindOf("{{ user.clear() }}"), "SecurityError");
  EXPECT_EQ(KindOf("{{ range.__globals__.x }}"), "SecurityError");
  EXPECT_EQ(KindOf("{% set ns = namespace() %}{% set ns.__class__ = 1 %}"), "SecurityError");
  EXPECT_EQ(KindOf("{{ cycler.__init__.__globals__.os.popen('id') }}"), "SecurityError");
}

TEST(TemplateLimits, RefuseBrokenSources) {
  EXPECT_THROW(ChatTemplate::Parse("\xFF"), TemplateError);
  EXPECT_THROW(ChatTemplate::Parse("{{ '\\ud800' }}"), TemplateError);
  EXPECT_THROW(ChatTemplate::Parse("{{ 99999999999999999999 }}"), TemplateError);
  EXPECT_EQ(KindOf(""), "rendered");
  EXPECT_EQ(KindOf(std::string(1, '\0')), "rendered");
  for (const char* source : {"{{",
                             "{%",
                             "{# x",
                             "{{-",
                             "{%-",
                             "{#- x",
                             "{{ '",
                             "{% raw",
                             "{% raw %}{%",
                             "{{ x[",
                             "{{ x(",
                             "{% set",
                             "{% for",
                             "{% macro",
                             "{% call",
                             "{{ 1 if",
                             "{{ x is",
                             "{{ x |",
                             "{% if 1 %}{% else",
                             "{{ {",
                             "{{ {1",
                             "{{ {1:",
                             "{{ \\ }}",
                             "{% set x.y.z = 1 %}"}) {
    EXPECT_THROW(ChatTemplate::Parse(source), TemplateError) << source;
  }
}

}  // namespace
}  // namespace octavo::text
