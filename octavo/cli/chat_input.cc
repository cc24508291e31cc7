#include "octavo/cli/chat_input.h"

#include <filesystem>

#include "octavo/base/error.h"
#include "octavo/base/mapped_file.h"
#include "octavo/text/template_json.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;
using text::ChatInputs;
using text::jinja::Kind;
using text::jinja::Value;

bool IsSwitchedOn(const Value& value) { return value.is(Kind::kBool) && value.boolean(); }

ChatInputs ReadInputs(const std::string& path) {
  const MappedFile file(path);
  Value given;
  try {
    given = text::jinja::ParseJson({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()});
  } catch (const Error& error) {
    ThrowFile("{}: {}", path, error.message());
  }
  ChatInputs inputs;
  if (given.is(Kind::kList)) {
    inputs.messages = given;
    return inputs;
  }
  if (!given.is(Kind::kDict) || given.dict().Find("messages") == nullptr) {
    throw Error(ErrorCode::kFile, fmt::format("{}: expected a list of messages or an object with \"messages\"", path),
                R"(for example [{"role": "user", "content": "Hello"}])");
  }
  for (const auto& [name, value] : given.dict().entries()) {
    const std::string key(name.str());
    if (key == "messages") {
      inputs.messages = value;
    } else if (key == "tools") {
      inputs.tools = value;
    } else if (key == "documents") {
      inputs.documents = value;
    } else if (key == "add_generation_prompt") {
      inputs.add_generation_prompt = IsSwitchedOn(value);
    } else if (key == "continue_final_message") {
      if (IsSwitchedOn(value)) inputs.continue_field = "content";
      if (value.is_string()) inputs.continue_field = value.str();
    } else {
      inputs.variables[key] = value;
    }
  }
  return inputs;
}

}  // namespace

text::ChatTemplateFiles FindChatTemplates(const std::string& model, const std::string& given) {
  fs::path place(model);
  std::error_code ignored;
  // A file of the tokenizer or of weights stands for its folder.
  const std::string extension = place.extension().string();
  const bool tokenizer_file = extension == ".json" || extension == ".model" || extension == ".tiktoken" ||
                              extension == ".bin" || extension == ".safetensors";
  if (fs::is_regular_file(place, ignored) && tokenizer_file && place.filename() != "tokenizer_config.json") {
    place = place.has_parent_path() ? place.parent_path() : fs::path(".");
  }
  text::ChatTemplateFiles files;
  if (fs::exists(place, ignored)) files = text::ReadChatTemplateFiles(place);
  if (!given.empty()) files.templates = text::ReadChatTemplateFiles(given).templates;
  if (files.templates.empty()) {
    if (!fs::exists(place, ignored)) ThrowFile("{}: no such file or folder", model);
    throw Error(ErrorCode::kUsage, "no chat template in tokenizer_config.json or chat_template.jinja",
                fmt::format("found none in {}; give chat_template=FILE", place.string()));
  }
  return files;
}

text::ChatTemplateFiles FindChatTemplates(const std::string& tokenizer_path, const fs::path& stored,
                                          const std::string& model, const std::string& given) {
  const std::string place = tokenizer_path.empty() ? stored.string() : tokenizer_path;
  std::error_code ignored;
  return FindChatTemplates(fs::exists(place, ignored) ? place : model, given);
}

text::Rendered RenderChat(const std::string& model, const std::string& given, const std::string& messages_path,
                          bool add_generation_prompt, std::string_view name) {
  const text::ChatTemplateFiles files = FindChatTemplates(model, given);
  ChatInputs inputs = ReadInputs(messages_path);
  inputs.special_tokens = files.special_tokens;
  inputs.add_generation_prompt = inputs.add_generation_prompt || add_generation_prompt;
  const bool has_tools = inputs.tools.is(Kind::kList) && !inputs.tools.items().empty();
  return text::ChatTemplate::Parse(files.Choose(has_tools, name)).Render(inputs);
}

}  // namespace octavo
