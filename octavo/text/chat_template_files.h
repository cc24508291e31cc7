// The chat templates that a model folder brings, and the special tokens they print: chat_template.jinja with
// additional_chat_templates/ beside it, or the key of tokenizer_config.json (one text or a list of named ones), or
// tokenizer.chat_template of a GGUF file.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>

namespace octavo::text {

struct ChatTemplateFiles {
  std::map<std::string, std::string> templates;       // sources by name; a single one is "default"
  std::map<std::string, std::string> special_tokens;  // bos_token, eos_token, ...

  // The source with this name. Without a name: "tool_use" if there are tools and such a template, else "default".
  // Throws a usage Error that lists the names there are.
  const std::string& Choose(bool has_tools, std::string_view name = "") const;
};

// `path` is a model folder, a tokenizer_config.json, a GGUF file, or a template file of any other name. A folder
// without templates gives none. A malformed file is a file Error.
ChatTemplateFiles ReadChatTemplateFiles(const std::filesystem::path& path);

}  // namespace octavo::text
