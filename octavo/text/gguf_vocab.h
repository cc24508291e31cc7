// Tokenizers of GGUF files, from the arrays of their tokenizer.ggml.* keys; gguf_vocab_file.h fills the struct from a
// file. Used by LoadTokenizer and the engine.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/text/tokenizer.h"

namespace octavo::text {

struct GgufVocabulary {
  std::string model;                // tokenizer.ggml.model: "gpt2" (byte-level BPE), "llama" (SentencePiece BPE),
                                    // "t5" (Unigram)
  std::string pre;                  // tokenizer.ggml.pre, for gpt2
  std::vector<std::string> tokens;  // tokenizer.ggml.tokens
  std::vector<float> scores;        // .scores: as many, or none
  std::vector<int32_t> types;       // .token_type: as many, or none; 1 normal 2 unknown 3 control 4 user defined
                                    // 5 unused 6 byte
  std::vector<std::string> merges;  // .merges, for gpt2
  std::string charsmap;             // .precompiled_charsmap
  std::optional<int64_t> bos_id, eos_id, unknown_id, pad_id;  // .bos_token_id, …
  std::optional<bool> add_bos, add_eos;                       // .add_bos_token, …
  std::optional<bool> add_space_prefix, remove_extra_spaces;  // .add_space_prefix, .remove_extra_whitespaces
  std::string chat_template;                                  // tokenizer.chat_template; not used by the tokenizer
};

// `name` begins error messages. Throws a file Error for arrays that do not fit each other and for kinds that are not
// known.
std::unique_ptr<Tokenizer> MakeGgufTokenizer(const GgufVocabulary& vocabulary, std::string_view name);

}  // namespace octavo::text
