// The Unigram model: of all ways to cut a word into known pieces, the one with the greatest sum of scores (Viterbi). As
// in tokenizer.json and SentencePiece's vocabularies inside GGUF files. Used by the tokenizer pipeline.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "octavo/text/tokenizer_model.h"
#include "octavo/text/tokenizer_trie.h"

namespace octavo::text {

class Unigram : public Model {
 public:
  // Piece i of the list has id i. Throws a file Error for an unknown id outside the list or a piece that is too long.
  Unigram(const std::vector<std::pair<std::string, double>>& pieces, std::optional<int64_t> unknown_id,
          bool byte_fallback);

  std::unique_ptr<ModelScratch> MakeScratch() const override;
  void Tokenize(std::string_view word, bool plain, ModelScratch& scratch, std::vector<ModelToken>& out) const override;
  void SetSpecial(const std::vector<bool>& special) override { special_ = special; }

 private:
  bool Blocked(int32_t id, bool plain) const {
    return plain && static_cast<size_t>(id) < special_.size() && special_[static_cast<size_t>(id)];
  }
  void PushUnknown(std::string_view word, uint32_t begin, uint32_t end, bool plain, std::vector<ModelToken>& out) const;

  std::vector<double> scores_;  // by id
  ByteTrie trie_;
  std::array<int32_t, 256> fallback_ids_{};  // <0x00> … <0xFF>, or -1
  double unknown_score_ = 0;
  int32_t unknown_id_ = -1;
  bool byte_fallback_;
  std::vector<bool> special_;
};

}  // namespace octavo::text
