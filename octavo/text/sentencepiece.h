// Tokenizers of SentencePiece .model files, run by SentencePiece's own library. Control pieces are special tokens:
// never from a user's text, found in trusted text before the library sees it. Used by LoadTokenizer and by the GGUF
// loader.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/text/sentencepiece_proto.h"
#include "octavo/text/tokenizer.h"

namespace octavo::text {

struct SentencePieceOptions {
  bool add_bos = true;  // with add_special, if the model has the piece
  bool add_eos = false;
  std::vector<AddedToken> added;  // beyond the model's pieces; ids already given
  bool library_only = false;      // never take the fast way of sentencepiece_bpe.h; the ids are the same
};

// From the bytes of a .model file; `name` begins error messages. Throws a file Error.
std::unique_ptr<Tokenizer> ParseSentencePiece(std::string_view bytes, std::string_view name,
                                              const SentencePieceOptions& options = {});

// The same from a model in memory.
std::unique_ptr<Tokenizer> MakeSentencePiece(const SentencePieceModel& model, std::string_view name,
                                             const SentencePieceOptions& options = {});

}  // namespace octavo::text
