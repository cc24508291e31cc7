// Reference data of chat templates: a folder with `cases.json` and `templates/<name>.jinja`. A case is a conversation
// with its options, and the text that the reference library rendered or the error that it raised; the text must be
// equal byte for byte, an error of the same kind with the same message.
#include <fmt/format.h>

#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/base/mapped_file.h"
#include "octavo/cli/golden.h"
#include "octavo/text/chat_template.h"
#include "octavo/text/template_json.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;
using text::ChatInputs;
using text::ChatTemplate;
using text::jinja::DictObject;
using text::jinja::Kind;
using text::jinja::Value;

std::string ReadFile(const fs::path& path) {
  const MappedFile file(path);
  const auto bytes = file.bytes();
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

Value FieldOf(const DictObject& object, std::string_view key) {
  const Value* found = object.Find(key);
  return found == nullptr ? Value::None() : *found;
}

// A string that must be there.
std::string TextOf(const DictObject& object, std::string_view key, const fs::path& path) {
  const Value value = FieldOf(object, key);
  if (!value.is_string()) ThrowFile("{}: a case has no text '{}'", path.string(), key);
  return std::string(value.str());
}

// "2026-01-15 12:34:56": the clock that the reference saw.
std::optional<text::LocalTime> ReadClock(const DictObject& index) {
  const Value now = FieldOf(index, "now");
  text::LocalTime time;
  if (!now.is_string()) return std::nullopt;
  const std::string clock(now.str());
  const int fields = std::sscanf(clock.c_str(), "%d-%d-%d %d:%d:%d", &time.year, &time.month, &time.day, &time.hour,
                                 &time.minute, &time.second);
  return fields == 6 ? std::optional(time) : std::nullopt;
}

// Options are keyword arguments of apply_chat_template: two of them are its own, the others are template variables.
ChatInputs ReadInputs(const DictObject& one) {
  ChatInputs inputs;
  inputs.messages = FieldOf(one, "messages");
  inputs.tools = FieldOf(one, "tools");
  inputs.documents = FieldOf(one, "documents");
  for (const auto& [key, value] : one.entries())
    if (key.str().ends_with("_token") && value.is_string()) inputs.special_tokens[std::string(key.str())] = value.str();
  const Value options = FieldOf(one, "options");
  if (!options.is(Kind::kDict)) return inputs;
  for (const auto& [key, value] : options.dict().entries()) {
    if (key.str() == "add_generation_prompt") {
      inputs.add_generation_prompt = value.is(Kind::kBool) && value.boolean();
    } else if (key.str() == "continue_final_message") {
      if (value.is_string()) inputs.continue_field = value.str();
      if (value.is(Kind::kBool) && value.boolean()) inputs.continue_field = "content";
    } else {
      inputs.variables[std::string(key.str())] = value;
    }
  }
  return inputs;
}

// Where two texts part, with what follows.
std::string Difference(std::string_view expected, std::string_view actual) {
  size_t at = 0;
  while (at < expected.size() && at < actual.size() && expected[at] == actual[at]) ++at;
  const auto rest = [at](std::string_view text) {
    std::string shown;
    for (const char c : text.substr(at, 60)) shown += c == '\n' ? std::string("\\n") : std::string(1, c);
    return shown;
  };
  return fmt::format("differs at byte {}: expected \"{}\", got \"{}\"", at, rest(expected), rest(actual));
}

// What is wrong with a case, if anything.
std::optional<std::string> RunCase(const DictObject& one, const ChatTemplate& source,
                                   const text::RenderOptions& options) {
  const Value rendered = FieldOf(one, "rendered"), error = FieldOf(one, "error");
  try {
    const text::Rendered result = source.Render(ReadInputs(one), options);
    if (!rendered.is_string()) return "rendered, where the reference raised an error";
    if (result.text != rendered.str()) return Difference(rendered.str(), result.text);
    return std::nullopt;
  } catch (const text::TemplateError& failure) {
    if (!error.is(Kind::kDict)) return failure.what();
    const Value kind = FieldOf(error.dict(), "type"), message = FieldOf(error.dict(), "message");
    if (kind.is_string() && failure.kind() == kind.str() && message.is_string() && failure.detail() == message.str())
      return std::nullopt;
    return fmt::format("expected {}: {}\n  got {}: {}", kind.is_string() ? kind.str() : "an error",
                       message.is_string() ? message.str() : "", failure.kind(), failure.detail());
  }
}

bool IsTemplateFolder(const fs::path& folder) {
  return fs::is_regular_file(folder / "cases.json") && fs::is_directory(folder / "templates");
}

// A malformed file is a file error; everything else that goes wrong is a failure of its case.
GoldenFolderResult RunTemplateFolder(const fs::path& folder, ThreadPool&) {
  const fs::path index_path = folder / "cases.json";
  text::jinja::JsonLimits limits;
  limits.bytes = size_t{256} << 20;
  limits.depth = 100;
  limits.values = limits.containers = size_t{1} << 26;
  Value index;
  try {
    index = text::jinja::ParseJson(ReadFile(index_path), text::jinja::kFromUser, limits);
  } catch (const Error& error) {
    ThrowFile("{}: {}", index_path.string(), error.message());
  }
  const Value cases = index.is(Kind::kDict) ? FieldOf(index.dict(), "cases") : Value::None();
  if (!cases.is(Kind::kList)) ThrowFile("{}: expected an object with a list of cases", index_path.string());

  text::RenderOptions options;
  options.now = ReadClock(index.dict());
  GoldenFolderResult result;
  std::map<std::string, ChatTemplate> templates;
  for (const Value& one : cases.items()) {
    if (!one.is(Kind::kDict)) ThrowFile("{}: a case is not an object", index_path.string());
    const std::string name = TextOf(one.dict(), "template", index_path);
    const std::string case_name = fmt::format("{} {}", name, TextOf(one.dict(), "conversation", index_path));
    std::optional<std::string> problem;
    try {
      auto found = templates.find(name);
      if (found == templates.end()) {
        const std::string source = ReadFile(folder / "templates" / (name + ".jinja"));
        found = templates.emplace(name, ChatTemplate::Parse(source)).first;
      }
      problem = RunCase(one.dict(), found->second, options);
    } catch (const std::exception& error) {
      problem = error.what();
    }
    if (problem)
      result.failures.push_back({case_name, *problem});
    else
      ++result.passed;
  }
  return result;
}

}  // namespace

GoldenFolderKind TemplateFolderKind() { return {"chat templates", IsTemplateFolder, RunTemplateFolder}; }

}  // namespace octavo
