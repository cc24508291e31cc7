// The tokenizer that belongs to a stored model. Used by whoever serves one: ServingModel and the Engine.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/text/tokenizer.h"
#include "octavo/weights/stored_model.h"

namespace octavo::engine {

// Where it is: in the model's folder, or as the run that trained it says. Empty: the model brings none.
std::string TokenizerPathOf(const weights::StoredModel& stored);

// What text::LoadTokenizer opens; one with more tokens than the model has is a usage error.
std::unique_ptr<text::Tokenizer> OpenTokenizer(const std::string& path, int64_t vocabulary_size);

// The ids of a prompt as text: with the beginning that the tokenizer puts before a text, without its end. Special
// tokens written in the text are plain text.
std::vector<int32_t> EncodePrompt(const text::Tokenizer& tokenizer, std::string_view text);

}  // namespace octavo::engine
