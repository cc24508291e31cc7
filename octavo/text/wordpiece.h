// WordPiece (BERT): the longest known piece from the left, again and again, the later ones with a prefix; a word that
// cannot be covered is unknown. And WordLevel: a word is a token or unknown. Used by the tokenizer pipeline.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "octavo/text/tokenizer_model.h"
#include "octavo/text/tokenizer_trie.h"

namespace octavo::text {

class WordPiece : public Model {
 public:
  // Throws a file Error when the unknown token is missing or a token is too long.
  WordPiece(Vocabulary vocabulary, const std::string& unknown_token, const std::string& continuing_prefix,
            int64_t max_chars);

  std::unique_ptr<ModelScratch> MakeScratch() const override;
  void Tokenize(std::string_view word, bool plain, ModelScratch& scratch, std::vector<ModelToken>& out) const override;
  void SetSpecial(const std::vector<bool>& special) override { special_ = special; }

 private:
  ByteTrie start_, continuing_;
  int32_t unknown_id_;
  size_t max_chars_;
  std::vector<bool> special_;
};

class WordLevel : public Model {
 public:
  WordLevel(Vocabulary vocabulary, const std::string& unknown_token);

  std::unique_ptr<ModelScratch> MakeScratch() const override;
  void Tokenize(std::string_view word, bool plain, ModelScratch& scratch, std::vector<ModelToken>& out) const override;
  void SetSpecial(const std::vector<bool>& special) override { special_ = special; }

 private:
  int32_t unknown_id_;  // -1: a word that is not known is an error
  std::vector<bool> special_;
};

}  // namespace octavo::text
