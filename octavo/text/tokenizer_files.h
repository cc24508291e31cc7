// Where the tokenizer of a folder is. Used by LoadTokenizer and by weights/, which says what belongs to a model, so
// that every verb finds the same file. Opens nothing.
#pragma once

#include <filesystem>
#include <optional>

namespace octavo::text {

// The first tokenizer file of a folder: tokenizer.json, tokenizer.model, *.tiktoken, tiktoken.model, the one tok*.bin
// of llama2.c, the one GGUF file.
std::optional<std::filesystem::path> FindTokenizerFile(const std::filesystem::path& folder);

}  // namespace octavo::text
