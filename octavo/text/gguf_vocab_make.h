// The way into GGUF files for the tokenizer of a model folder: tokenizer.json or tokenizer.model as the arrays that
// such files hold. Used by the converter. What is made is tried on a text before it is given out: a vocabulary that
// would give other ids than the original is never written.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "octavo/text/gguf_vocab.h"

namespace octavo::text {

struct MadeGgufVocabulary {
  std::optional<GgufVocabulary> vocabulary;
  std::string note;  // why there is none
};

// `path` is what LoadTokenizer takes: a folder, a file, a GGUF file (whose arrays are taken as they are). The arrays
// are filled up to `vocabulary_size` entries, the rows of the model's table. `sample` is the text both are tried on.
// Unreadable files are file Errors; kinds that GGUF has no form for give a note.
MadeGgufVocabulary MakeGgufVocabulary(const std::string& path, int64_t vocabulary_size, std::string_view sample);

}  // namespace octavo::text
