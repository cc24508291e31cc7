// Tokens that are found in text before the model sees it: special ones (control tokens, found only where the caller
// trusts the text) and ordinary added ones. Finds the longest at the leftmost place; the flags of tokenizer.json
// (single word, white space swallowed left or right, matched before or after normalization) apply. Used by the
// tokenizer pipeline.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "octavo/text/aligned_text.h"
#include "octavo/text/tokenizer_trie.h"

namespace octavo::text {

struct AddedToken {
  int32_t id = -1;
  std::string content;
  bool single_word = false;
  bool lstrip = false;
  bool rstrip = false;
  bool normalized = false;
  bool special = false;
  std::string pattern;  // what is looked for: the content, normalized if it is matched after normalization
};

// Which special tokens a text may yield.
struct SpecialPolicy {
  bool parse = false;                  // none, or all…
  std::span<const Span> trusted = {};  // …or, if not empty, those that lie inside one of these ranges of bytes
  bool Allows(size_t begin, size_t end) const;
};

// A stretch of text: an added token, or what lies between.
struct AddedMatch {
  size_t begin, end;
  const AddedToken* token;  // null between
};

class AddedTokens {
 public:
  AddedTokens() = default;
  explicit AddedTokens(std::vector<AddedToken> tokens);

  std::span<const AddedToken> tokens() const { return tokens_; }
  const AddedToken* ById(int32_t id) const;
  const AddedToken* ByContent(std::string_view content) const;

  bool AnyBefore() const { return !before_.all.empty(); }
  bool AnyAfter() const { return !after_.all.empty(); }

  // Cuts `text` into tokens and the rest, in order; nothing empty. `normalized` chooses the set that is matched after
  // normalization; positions for the policy are bytes of `text`.
  void Find(std::string_view text, bool normalized, const SpecialPolicy& policy, std::vector<AddedMatch>& out) const;

 private:
  // One set of patterns: all, and without the special ones.
  struct Set {
    ByteTrie all, ordinary;
    std::array<bool, 256> starts_all{}, starts_ordinary{};
  };
  void Build(bool normalized, Set& set);

  std::vector<AddedToken> tokens_;
  std::vector<int32_t> by_id_;  // index into tokens_, or -1
  std::unordered_map<std::string_view, size_t> by_content_;
  Set before_, after_;
};

}  // namespace octavo::text
