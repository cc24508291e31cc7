// A fast way to encode with SentencePiece models of kind BPE: the library's normalization and merge rule on top of
// bpe.h, ids only. The library, which is the reference and does everything else, handles about 1 MB/s and less of long
// text; this gives the same ids. Used by sentencepiece.cc.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/text/added_tokens.h"
#include "octavo/text/bpe.h"
#include "octavo/text/normalizer_charsmap.h"
#include "octavo/text/sentencepiece_proto.h"

namespace octavo::text {

class SentencePieceBpe {
 public:
  // Null for a model whose rules go beyond this: another kind, unused pieces, spaces as suffixes, pieces with
  // characters that are no pieces themselves.
  static std::unique_ptr<SentencePieceBpe> Make(const SentencePieceModel& model);

  // Appends the ids of any bytes.
  void Encode(std::string_view text, BpeScratch& scratch, std::vector<int32_t>& ids) const;

  // What the library calls normalizing: character map, spaces as U+2581, one in front.
  std::string Normalize(std::string_view text) const;

 private:
  SentencePieceBpe() = default;
  // What the bytes at the front become, and how many they are.
  std::pair<std::string_view, size_t> NormalizePrefix(std::string_view text) const;

  std::unique_ptr<Bpe> bpe_;
  AddedTokens user_defined_;
  ByteTrie user_defined_trie_;
  std::unique_ptr<Charsmap> charsmap_;
  bool add_dummy_prefix_ = true;
  bool remove_extra_spaces_ = true;
};

}  // namespace octavo::text
