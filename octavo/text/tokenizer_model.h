// The heart of a tokenizer: what turns one word into tokens. BPE, Unigram, WordPiece and WordLevel implement it; the
// pipeline calls it for each word that normalizer and pre-tokenizer leave.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "octavo/text/tokenizer_vocab.h"

namespace octavo::text {

struct ModelToken {
  int32_t id;
  uint32_t begin, end;   // bytes of the word
  bool surface = false;  // an unknown stretch: its text is the word's, not the vocabulary's
};

// What a model writes while it works: buffers and caches. One per thread at a time.
class ModelScratch {
 public:
  virtual ~ModelScratch() = default;
};

// Immutable after construction; any number of threads may use one, each with its own scratch.
class Model {
 public:
  virtual ~Model() = default;

  virtual std::unique_ptr<ModelScratch> MakeScratch() const = 0;

  // Appends the tokens of `word`, which is not empty. With `plain` no special token's id comes out, whatever the word
  // says.
  virtual void Tokenize(std::string_view word, bool plain, ModelScratch& scratch,
                        std::vector<ModelToken>& out) const = 0;

  // The ids alone.
  virtual void Encode(std::string_view word, bool plain, ModelScratch& scratch, std::vector<int32_t>& out) const;

  const Vocabulary& vocabulary() const { return vocabulary_; }

  // Names the ids that `plain` text must not give. Called once, before the first word.
  virtual void SetSpecial(const std::vector<bool>& special) = 0;

 protected:
  Vocabulary vocabulary_;
};

}  // namespace octavo::text
