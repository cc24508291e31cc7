// The language as the reference engine has it: every case of tests/golden/template_language was rendered by jinja2.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "octavo/text/chat_template.h"
#include "octavo/text/template_compare.h"

namespace octavo::text {
namespace {

using jinja::Kind;
using jinja::Value;

Value ReadCases() {
  std::ifstream file(OCTAVO_SOURCE_DIR "/tests/golden/template_language/cases.json");
  std::stringstream bytes;
  bytes << file.rdbuf();
  return jinja::ParseJson(bytes.str());
}

std::string Field(const Value& object, std::string_view key) {
  const Value* value = object.dict().Find(key);
  return value == nullptr || !value->is_string() ? "" : std::string(value->str());
}

TEST(TemplateLanguage, AgreesWithTheReferenceEngine) {
  const Value index = ReadCases();
  TemplateVariables variables;
  for (const auto& [name, value] : index.dict().Find("variables")->dict().entries())
    variables[std::string(name.str())] = value;
  RenderOptions options;
  options.now = LocalTime{2026, 1, 15, 12, 34, 56, 0};
  int rendered = 0, errors = 0;
  for (const Value& one : index.dict().Find("cases")->items()) {
    const std::string source = Field(one, "template");
    const Value* error = one.dict().Find("error");
    try {
      const Rendered result = ChatTemplate::Parse(source).RenderVariables(variables, options);
      EXPECT_TRUE(error == nullptr) << source << "\nrendered: " << result.text;
      EXPECT_EQ(result.text, Field(one, "rendered")) << source;
      ++rendered;
    } catch (const TemplateError& failure) {
      ASSERT_TRUE(error != nullptr) << source << "\n" << failure.what();
      EXPECT_EQ(failure.kind(), Field(*error, "type")) << source << "\n" << failure.what();
      ++errors;
    }
  }
  EXPECT_EQ(rendered, 264);
  EXPECT_EQ(errors, 95);
}

// Messages that a template's author is likely to meet must be the reference's, word for word.
TEST(TemplateLanguage, SaysWhatTheReferenceSays) {
  const Value index = ReadCases();
  TemplateVariables variables;
  for (const auto& [name, value] : index.dict().Find("variables")->dict().entries())
    variables[std::string(name.str())] = value;
  int equal = 0, all = 0;
  for (const Value& one : index.dict().Find("cases")->items()) {
    const Value* error = one.dict().Find("error");
    if (error == nullptr) continue;
    ++all;
    try {
      ChatTemplate::Parse(Field(one, "template")).RenderVariables(variables);
    } catch (const TemplateError& failure) {
      const bool same = failure.detail() == Field(*error, "message");
      equal += same;
      const std::string kind = Field(*error, "type");
      if (kind == "UndefinedError" || kind == "TemplateError" || kind == "SecurityError" ||
          kind == "TemplateSyntaxError") {
        EXPECT_EQ(failure.detail(), Field(*error, "message")) << Field(one, "template");
      }
    }
  }
  EXPECT_GE(equal, all - 8) << "of " << all;
}

}  // namespace
}  // namespace octavo::text
