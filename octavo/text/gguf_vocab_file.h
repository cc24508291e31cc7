// The tokenizer.* keys of a GGUF file, read from its first bytes without looking at the tensors. Used by LoadTokenizer
// and for the chat templates of GGUF files; reading weights is the checkpoint folder's business. Every count and length
// is checked against the bytes that are there before anything is allocated.
#pragma once

#include <string_view>

#include "octavo/text/gguf_vocab.h"

namespace octavo::text {

// `bytes` is the whole file, mostly mapped; `name` begins error messages. Throws a file Error for a damaged file and
// for one without a tokenizer.
GgufVocabulary ReadGgufVocabulary(std::string_view bytes, std::string_view name);

// True when the bytes begin like a GGUF file.
inline bool LooksLikeGguf(std::string_view bytes) { return bytes.starts_with("GGUF"); }

}  // namespace octavo::text
