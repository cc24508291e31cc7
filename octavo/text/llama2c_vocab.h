// The tokenizer files of llama2.c (tokenizer.bin, tok512.bin): the pieces and scores of a SentencePiece BPE model,
// without types and with blanks in place of its mark. Used by LoadTokenizer.
#pragma once

#include <string_view>

#include "octavo/text/gguf_vocab.h"

namespace octavo::text {

// `name` begins error messages. A file Error for anything that is not such a file to its last byte.
GgufVocabulary ParseLlama2cVocabulary(std::string_view bytes, std::string_view name);

}  // namespace octavo::text
