#include "octavo/text/sentencepiece_bpe.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "octavo/text/unicode.h"

namespace octavo::text {
namespace {

constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";  // U+2581
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// The merges that lead to each piece from any two that make it up. Rank by score, highest first; equal scores, equal
// ranks. Nothing when a piece holds a character that is none.
std::optional<std::vector<MergeRule>> MergesByScore(const SentencePieceModel& model, const Vocabulary& normal) {
  std::vector<float> scores;
  for (const SentencePieceModel::Piece& piece : model.pieces) scores.push_back(piece.score);
  std::sort(scores.begin(), scores.end(), std::greater<>());
  scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
  std::vector<MergeRule> merges;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const SentencePieceModel::Piece& piece = model.pieces[id];
    if (piece.type != PieceType::kNormal) continue;
    const auto place = std::lower_bound(scores.begin(), scores.end(), piece.score, std::greater<>());
    const auto rank = static_cast<int32_t>(place - scores.begin());
    const std::string_view text = piece.text;
    for (size_t at = 0; at < text.size();) {
      const auto length = static_cast<size_t>(LeadLength(static_cast<unsigned char>(text[at])));
      if (!normal.Find(text.substr(at, length))) return std::nullopt;
      if (at > 0) {
        const std::optional<int32_t> left = normal.Find(text.substr(0, at));
        const std::optional<int32_t> right = normal.Find(text.substr(at));
        if (left && right) merges.push_back({*left, *right, static_cast<int32_t>(id), rank});
      }
      at += length;
    }
  }
  return merges;
}

}  // namespace

std::unique_ptr<SentencePieceBpe> SentencePieceBpe::Make(const SentencePieceModel& model) {
  if (model.kind != SentencePieceModel::Kind::kBpe || model.space_as_suffix) return nullptr;
  Vocabulary normal;
  Vocabulary all;  // with what characters that are no piece become
  std::vector<AddedToken> user_defined;
  std::vector<std::pair<std::string_view, int32_t>> user_defined_texts;
  BpeOptions options;
  options.fuse_unknown = true;
  options.byte_fallback = model.byte_fallback;
  for (size_t index = 0; index < model.pieces.size(); ++index) {
    const SentencePieceModel::Piece& piece = model.pieces[index];
    const auto id = static_cast<int32_t>(index);
    switch (piece.type) {
      case PieceType::kUnused:
        return nullptr;
      case PieceType::kControl:
        continue;
      case PieceType::kUnknown:
        options.unknown_token = piece.text;
        break;
      case PieceType::kUserDefined: {
        AddedToken token;
        token.id = id;
        token.content = token.pattern = piece.text;
        user_defined.push_back(std::move(token));
        user_defined_texts.emplace_back(piece.text, id);
        continue;
      }
      case PieceType::kNormal:
        normal.Add(piece.text, id);
        break;
      case PieceType::kByte:
        break;
    }
    all.Add(piece.text, id);
  }
  std::optional<std::vector<MergeRule>> merges = MergesByScore(model, normal);
  if (!merges || !options.unknown_token) return nullptr;
  std::unique_ptr<SentencePieceBpe> made(new SentencePieceBpe);
  made->bpe_ = std::make_unique<Bpe>(std::move(all), *merges, std::move(options));
  made->user_defined_ = AddedTokens(std::move(user_defined));
  made->user_defined_trie_ = ByteTrie(std::move(user_defined_texts));
  if (!model.charsmap.empty()) made->charsmap_ = std::make_unique<Charsmap>(model.charsmap, "charsmap");
  made->add_dummy_prefix_ = model.add_dummy_prefix;
  made->remove_extra_spaces_ = model.remove_extra_spaces;
  return made;
}

std::pair<std::string_view, size_t> SentencePieceBpe::NormalizePrefix(std::string_view text) const {
  size_t user_defined = 0;
  user_defined_trie_.Prefixes(text, [&](size_t length, int32_t) {
    user_defined = length;
    return true;
  });
  if (user_defined > 0) return {text.substr(0, user_defined), user_defined};
  if (charsmap_ != nullptr) {
    size_t length = 0;
    if (const std::optional<std::string_view> found = charsmap_->LongestPrefix(text, length)) return {*found, length};
  }
  const int length = ValidLength(text);
  if (length == 0) return {kReplacement, 1};
  return {text.substr(0, static_cast<size_t>(length)), static_cast<size_t>(length)};
}

std::string SentencePieceBpe::Normalize(std::string_view text) const {
  std::string out;
  while (remove_extra_spaces_ && !text.empty()) {
    const auto [becomes, length] = NormalizePrefix(text);
    if (becomes != " ") break;
    text.remove_prefix(length);
  }
  if (text.empty()) return out;
  out.reserve(text.size() + text.size() / 2);
  if (add_dummy_prefix_) out += kSpaceSymbol;
  const bool plain = charsmap_ == nullptr && user_defined_trie_.empty();
  bool after_space = remove_extra_spaces_;
  while (!text.empty()) {
    // Most text is ASCII that nothing applies to.
    const char first = text[0];
    if (plain && static_cast<unsigned char>(first) < 0x80 && first != ' ') {
      out.push_back(first);
      after_space = false;
      text.remove_prefix(1);
      continue;
    }
    auto [becomes, length] = NormalizePrefix(text);
    text.remove_prefix(length);
    while (after_space && becomes.starts_with(' ')) becomes.remove_prefix(1);
    for (char c : becomes) {
      if (c == ' ') {
        out += kSpaceSymbol;
      } else {
        out.push_back(c);
      }
    }
    if (!becomes.empty()) after_space = remove_extra_spaces_ && becomes.ends_with(' ');
  }
  while (remove_extra_spaces_ && out.ends_with(kSpaceSymbol)) out.resize(out.size() - kSpaceSymbol.size());
  return out;
}

void SentencePieceBpe::Encode(std::string_view text, BpeScratch& scratch, std::vector<int32_t>& ids) const {
  const std::string normalized = Normalize(text);
  if (normalized.empty()) return;
  ids.reserve(ids.size() + normalized.size() / 3 + 8);
  if (user_defined_.tokens().empty()) {
    bpe_->Encode(normalized, false, scratch, ids);
    return;
  }
  std::vector<AddedMatch> matches;
  user_defined_.Find(normalized, false, {}, matches);
  for (const AddedMatch& match : matches) {
    if (match.token != nullptr) {
      ids.push_back(match.token->id);
    } else {
      bpe_->Encode(std::string_view(normalized).substr(match.begin, match.end - match.begin), false, scratch, ids);
    }
  }
}

}  // namespace octavo::text
