#include "octavo/text/chat_template_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "octavo/base/error.h"
#include "octavo/base/mapped_file.h"
#include "octavo/text/gguf_vocab_file.h"
#include "octavo/text/template_json.h"
#include "octavo/text/template_lexer.h"

namespace octavo::text {
namespace {

namespace fs = std::filesystem;
using jinja::Kind;
using jinja::Value;

std::string ReadText(const fs::path& path, size_t most) {
  const MappedFile file(path);
  const auto bytes = file.bytes();
  if (bytes.size() > most) ThrowFile("{}: {} bytes; at most {} are allowed", path.string(), bytes.size(), most);
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

Value ReadObject(const fs::path& path) {
  const jinja::JsonLimits limits;
  try {
    Value value = jinja::ParseJson(ReadText(path, limits.bytes), jinja::kFromTemplate, limits);
    if (value.is(Kind::kDict)) return value;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kFile) throw;
    ThrowFile("{}: {}", path.string(), error.message());
  }
  ThrowFile("{}: expected a JSON object", path.string());
}

// One text, or a list of {"name": ..., "template": ...}.
void ReadConfigTemplates(const Value& value, const fs::path& path, ChatTemplateFiles* files) {
  if (value.is_string()) {
    files->templates["default"] = value.str();
    return;
  }
  if (value.none()) return;
  if (!value.is(Kind::kList)) ThrowFile("{}: chat_template is neither text nor a list", path.string());
  for (const Value& one : value.items()) {
    const Value* name = one.is(Kind::kDict) ? one.dict().Find("name") : nullptr;
    const Value* source = one.is(Kind::kDict) ? one.dict().Find("template") : nullptr;
    if (name == nullptr || source == nullptr || !name->is_string() || !source->is_string())
      ThrowFile("{}: chat_template has an entry without a name and a template", path.string());
    files->templates[std::string(name->str())] = source->str();
  }
}

// "bos_token": "<s>", or an object that has the text as its content. Does not replace what is known.
void ReadSpecialTokens(const Value& config, ChatTemplateFiles* files) {
  for (const auto& [key, value] : config.dict().entries()) {
    if (!key.str().ends_with("_token")) continue;
    const Value* content = value.is(Kind::kDict) ? value.dict().Find("content") : &value;
    if (content != nullptr && content->is_string()) files->special_tokens.emplace(key.str(), content->str());
  }
}

void ReadConfig(const fs::path& path, ChatTemplateFiles* files) {
  const Value config = ReadObject(path);
  if (const Value* value = config.dict().Find("chat_template")) ReadConfigTemplates(*value, path, files);
  ReadSpecialTokens(config, files);
}

// Template files stand in for the key of the configuration.
void ReadTemplateFiles(const fs::path& folder, ChatTemplateFiles* files) {
  std::map<std::string, std::string> found;
  const fs::path main = folder / "chat_template.jinja", more = folder / "additional_chat_templates";
  if (fs::is_regular_file(main)) found["default"] = ReadText(main, jinja::kMaxTemplateBytes);
  if (fs::is_directory(more)) {
    for (const fs::directory_entry& entry : fs::directory_iterator(more))
      if (entry.is_regular_file() && entry.path().extension() == ".jinja")
        found[entry.path().stem().string()] = ReadText(entry.path(), jinja::kMaxTemplateBytes);
  }
  if (!found.empty()) files->templates = std::move(found);
}

// False: the file is something else.
bool ReadGguf(const fs::path& path, ChatTemplateFiles* files) {
  const MappedFile file(path);
  const std::string_view bytes(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  if (!LooksLikeGguf(bytes)) return false;
  const GgufVocabulary vocabulary = ReadGgufVocabulary(bytes, path.string());
  if (!vocabulary.chat_template.empty()) files->templates["default"] = vocabulary.chat_template;
  const auto add = [&](const char* name, const std::optional<int64_t>& id) {
    if (id && *id >= 0 && static_cast<uint64_t>(*id) < vocabulary.tokens.size())
      files->special_tokens[name] = vocabulary.tokens[static_cast<size_t>(*id)];
  };
  add("bos_token", vocabulary.bos_id);
  add("eos_token", vocabulary.eos_id);
  add("unk_token", vocabulary.unknown_id);
  add("pad_token", vocabulary.pad_id);
  return true;
}

}  // namespace

const std::string& ChatTemplateFiles::Choose(bool has_tools, std::string_view name) const {
  const std::string wanted(!name.empty()                                   ? name
                           : has_tools && templates.count("tool_use") != 0 ? "tool_use"
                                                                           : "default");
  const auto found = templates.find(wanted);
  if (found != templates.end()) return found->second;
  if (templates.empty()) throw Error(ErrorCode::kUsage, "the model has no chat template", "give one as a file");
  std::vector<std::string> names;
  for (const auto& [one, source] : templates) names.push_back(one);
  throw Error(ErrorCode::kUsage, fmt::format("the model has no chat template '{}'", wanted),
              fmt::format("it has: {}", fmt::join(names, ", ")));
}

ChatTemplateFiles ReadChatTemplateFiles(const fs::path& path) {
  ChatTemplateFiles files;
  if (!fs::is_directory(path)) {
    if (path.filename() == "tokenizer_config.json")
      ReadConfig(path, &files);
    else if (!ReadGguf(path, &files))
      files.templates["default"] = ReadText(path, jinja::kMaxTemplateBytes);
    return files;
  }
  if (const fs::path config = path / "tokenizer_config.json"; fs::is_regular_file(config)) ReadConfig(config, &files);
  if (const fs::path map = path / "special_tokens_map.json"; fs::is_regular_file(map))
    ReadSpecialTokens(ReadObject(map), &files);
  ReadTemplateFiles(path, &files);
  return files;
}

}  // namespace octavo::text
