// Conversations from files and the chat templates of models, for the verbs that take them: tokenize, inspect.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "octavo/text/chat_template.h"
#include "octavo/text/chat_template_files.h"

namespace octavo {

// The templates of a model (folder, GGUF file, tokenizer file with its folder), or of the file `given` when it is not
// empty; special tokens are the model's in both cases. No template at all is a usage Error.
text::ChatTemplateFiles FindChatTemplates(const std::string& model, const std::string& given);

// The same for a model that is opened: its templates lie with its tokenizer, `tokenizer_path` if that was given, else
// `stored`, else with the model itself. `bytes` is no place.
text::ChatTemplateFiles FindChatTemplates(const std::string& tokenizer_path, const std::filesystem::path& stored,
                                          const std::string& model, const std::string& given);

// Renders `messages_path`: a JSON list of messages, or an object with "messages" and optionally "tools", "documents",
// "add_generation_prompt", "continue_final_message" and variables of the template. `name` chooses among several
// templates.
text::Rendered RenderChat(const std::string& model, const std::string& given, const std::string& messages_path,
                          bool add_generation_prompt, std::string_view name = "");

}  // namespace octavo
