// Byte pair encoding, as tokenizer.json, tiktoken and GGUF files mean it: byte-level or over characters, byte fallback,
// unknown tokens fused or not, whole words straight from the vocabulary. Used by the tokenizer pipeline. Training is in
// bpe_trainer.h.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "octavo/text/bpe_cache.h"
#include "octavo/text/bpe_merge.h"
#include "octavo/text/tokenizer_model.h"

namespace octavo::text {

struct BpeOptions {
  std::optional<std::string> unknown_token;
  std::string continuing_prefix;  // on every character but the first of a word
  std::string end_suffix;         // on the last one
  bool fuse_unknown = false;
  bool byte_fallback = false;
  bool ignore_merges = false;  // a word that is a token is that token
};

// A merge by ids; `rank` orders them. Equal ranks go from left to right.
struct MergeRule {
  int32_t left, right, result, rank;
};

class BpeScratch : public ModelScratch {
 public:
  std::vector<Symbol> symbols;
  std::vector<Symbol> segment;
  MergeScratch merge;
  WordCache caches[2];  // by `plain`
};

class Bpe : public Model {
 public:
  // Ids of the merges must be in the vocabulary. Throws a file Error for an unknown token that is not.
  Bpe(Vocabulary vocabulary, const std::vector<MergeRule>& merges, BpeOptions options);

  std::unique_ptr<ModelScratch> MakeScratch() const override;
  void Tokenize(std::string_view word, bool plain, ModelScratch& scratch, std::vector<ModelToken>& out) const override;
  void Encode(std::string_view word, bool plain, ModelScratch& scratch, std::vector<int32_t>& out) const override;
  void SetSpecial(const std::vector<bool>& special) override;

  // True when the vocabulary holds all 256 characters of the byte-level alphabet and nothing else (prefix, suffix) gets
  // in the way: words may then be given as raw bytes.
  bool CanEncodeBytes() const { return !byte_ids_.empty(); }
  // Like Encode of the word in the byte-level alphabet, from the bytes themselves.
  void EncodeBytes(std::string_view bytes, bool plain, BpeScratch& scratch, std::vector<int32_t>& out) const;

 private:
  const MergeMap& Merges(bool plain) const { return plain && plain_merges_ ? *plain_merges_ : merges_; }
  bool Blocked(int32_t id, bool plain) const {
    return plain && static_cast<size_t>(id) < special_.size() && special_[static_cast<size_t>(id)];
  }
  void InitChars();
  void InitTouching(const std::vector<MergeRule>& merges);
  void InitBytes();
  int32_t CharId(char32_t c, bool plain) const;
  bool MayTouch(char32_t left, int32_t left_id, char32_t right, int32_t right_id) const;
  uint32_t AddSymbols(std::string_view word, bool plain, std::vector<Symbol>& symbols) const;
  void MergeAll(bool plain, std::vector<Symbol>& symbols, MergeScratch& scratch) const;
  template <typename Compute>
  void Cached(std::string_view word, bool plain, BpeScratch& scratch, std::vector<int32_t>& out, Compute compute) const;
  void EncodeSegment(std::string_view segment, bool plain, BpeScratch& scratch, std::vector<int32_t>& out) const;

  MergeMap merges_;
  std::unique_ptr<MergeMap> plain_merges_;  // without those that give special tokens; null when there are none
  BpeOptions options_;
  int32_t unknown_id_ = -1;
  std::array<int32_t, 256> fallback_ids_{};  // <0x00> … <0xFF>, or -1
  std::vector<bool> special_;
  bool special_matters_ = false;  // plain text may come out differently

  std::vector<int32_t> low_chars_;  // id of each of the first characters that is a token, or -1

  // Neighbours across which a merge can reach. Elsewhere a long text may be cut without changing its tokens.
  std::unique_ptr<MergeMap> touching_;
  std::vector<char> ascii_touching_;  // the same for ASCII and U+2581, direct

  // Byte level.
  std::vector<int32_t> byte_ids_;
  std::vector<Merge> byte_pairs_;  // [256 * 256]
  Vocabulary byte_words_;          // tokens as raw bytes, for ignore_merges
};

}  // namespace octavo::text
