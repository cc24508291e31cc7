#include "octavo/text/wordpiece.h"

#include <utility>

#include "octavo/base/error.h"
#include "octavo/text/unicode.h"

namespace octavo::text {
namespace {

bool IsSet(const std::vector<bool>& flags, int32_t id) {
  return static_cast<size_t>(id) < flags.size() && flags[static_cast<size_t>(id)];
}

}  // namespace

WordPiece::WordPiece(Vocabulary vocabulary, const std::string& unknown_token, const std::string& continuing_prefix,
                     int64_t max_chars)
    : max_chars_(static_cast<size_t>(max_chars)) {
  vocabulary_ = std::move(vocabulary);
  const std::optional<int32_t> unknown = vocabulary_.Find(unknown_token);
  if (!unknown) ThrowFile("unk_token '{}' is not in the vocabulary", unknown_token.substr(0, 60));
  unknown_id_ = *unknown;
  std::vector<std::pair<std::string_view, int32_t>> start;
  std::vector<std::pair<std::string_view, int32_t>> continuing;
  for (int32_t id = 0; id < vocabulary_.size(); ++id) {
    const std::optional<std::string_view> text = vocabulary_.Text(id);
    if (!text) continue;
    start.emplace_back(*text, id);
    if (text->starts_with(continuing_prefix)) continuing.emplace_back(text->substr(continuing_prefix.size()), id);
  }
  start_ = ByteTrie(std::move(start));
  continuing_ = ByteTrie(std::move(continuing));
}

std::unique_ptr<ModelScratch> WordPiece::MakeScratch() const { return std::make_unique<ModelScratch>(); }

void WordPiece::Tokenize(std::string_view word, bool plain, ModelScratch&, std::vector<ModelToken>& out) const {
  const auto whole = static_cast<uint32_t>(word.size());
  if (CountChars(word) > max_chars_) {
    out.push_back({unknown_id_, 0, whole});
    return;
  }
  const size_t first = out.size();
  for (uint32_t at = 0; at < whole;) {
    size_t longest = 0;
    int32_t best = -1;
    (at == 0 ? start_ : continuing_).Prefixes(word.substr(at), [&](size_t length, int32_t id) {
      // A token may end inside a character only in a damaged vocabulary.
      const bool whole_chars = at + length == whole || !IsContinuation(word[at + length]);
      if (whole_chars && !(plain && IsSet(special_, id))) {
        longest = length;
        best = id;
      }
      return true;
    });
    if (best < 0) {
      out.resize(first);
      out.push_back({unknown_id_, 0, whole});
      return;
    }
    out.push_back({best, at, at + static_cast<uint32_t>(longest)});
    at += static_cast<uint32_t>(longest);
  }
}

WordLevel::WordLevel(Vocabulary vocabulary, const std::string& unknown_token) {
  vocabulary_ = std::move(vocabulary);
  unknown_id_ = vocabulary_.Find(unknown_token).value_or(-1);
}

std::unique_ptr<ModelScratch> WordLevel::MakeScratch() const { return std::make_unique<ModelScratch>(); }

void WordLevel::Tokenize(std::string_view word, bool plain, ModelScratch&, std::vector<ModelToken>& out) const {
  int32_t id = vocabulary_.Find(word).value_or(-1);
  if (id < 0 || (plain && IsSet(special_, id))) id = unknown_id_;
  if (id < 0) {
    throw Error(ErrorCode::kUsage, fmt::format("the word '{}' is not in the vocabulary", word.substr(0, 60)),
                "the tokenizer has no unknown token");
  }
  out.push_back({id, 0, static_cast<uint32_t>(word.size())});
}

}  // namespace octavo::text
