#include "octavo/text/added_tokens.h"

#include <algorithm>
#include <utility>

#include "octavo/text/unicode.h"

namespace octavo::text {
namespace {

char32_t CharBefore(std::string_view text, size_t at) {
  size_t begin = at - 1;
  while (begin > 0 && IsContinuation(text[begin])) --begin;
  const char* p = text.data() + begin;
  return NextChar(p);
}

char32_t CharAt(std::string_view text, size_t at) {
  const char* p = text.data() + at;
  return NextChar(p);
}

bool StandsAlone(std::string_view text, size_t begin, size_t end) {
  const bool free_before = begin == 0 || !IsWordChar(CharBefore(text, begin));
  const bool free_after = end == text.size() || !IsWordChar(CharAt(text, end));
  return free_before && free_after;
}

size_t SkipSpacesBack(std::string_view text, size_t at, size_t least) {
  while (at > least) {
    const char32_t c = CharBefore(text, at);
    if (!IsSpace(c)) break;
    at -= static_cast<size_t>(Utf8Length(c));
  }
  return std::max(at, least);
}

size_t SkipSpaces(std::string_view text, size_t at) {
  while (at < text.size()) {
    const char32_t c = CharAt(text, at);
    if (!IsSpace(c)) break;
    at += static_cast<size_t>(Utf8Length(c));
  }
  return at;
}

}  // namespace

bool SpecialPolicy::Allows(size_t begin, size_t end) const {
  if (!parse) return false;
  if (trusted.empty()) return true;
  const auto after = std::upper_bound(trusted.begin(), trusted.end(), begin,
                                      [](size_t value, const Span& span) { return value < span.begin; });
  return after != trusted.begin() && end <= (after - 1)->end;
}

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const auto id = static_cast<size_t>(tokens_[i].id);
    if (id >= by_id_.size()) by_id_.resize(id + 1, -1);
    by_id_[id] = static_cast<int32_t>(i);
    by_content_[tokens_[i].content] = i;
  }
  Build(false, before_);
  Build(true, after_);
}

void AddedTokens::Build(bool normalized, Set& set) {
  std::vector<std::pair<std::string_view, int32_t>> all;
  std::vector<std::pair<std::string_view, int32_t>> ordinary;
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const AddedToken& token = tokens_[i];
    if (token.normalized != normalized || token.pattern.empty()) continue;
    const auto first = static_cast<unsigned char>(token.pattern[0]);
    all.emplace_back(token.pattern, static_cast<int32_t>(i));
    set.starts_all[first] = true;
    if (token.special) continue;
    ordinary.emplace_back(token.pattern, static_cast<int32_t>(i));
    set.starts_ordinary[first] = true;
  }
  set.all = ByteTrie(std::move(all));
  set.ordinary = ByteTrie(std::move(ordinary));
}

const AddedToken* AddedTokens::ById(int32_t id) const {
  if (id < 0 || static_cast<size_t>(id) >= by_id_.size() || by_id_[static_cast<size_t>(id)] < 0) return nullptr;
  return &tokens_[static_cast<size_t>(by_id_[static_cast<size_t>(id)])];
}

const AddedToken* AddedTokens::ByContent(std::string_view content) const {
  const auto found = by_content_.find(content);
  return found == by_content_.end() ? nullptr : &tokens_[found->second];
}

void AddedTokens::Find(std::string_view text, bool normalized, const SpecialPolicy& policy,
                       std::vector<AddedMatch>& out) const {
  const Set& set = normalized ? after_ : before_;
  const ByteTrie& trie = policy.parse ? set.all : set.ordinary;
  const std::array<bool, 256>& starts = policy.parse ? set.starts_all : set.starts_ordinary;
  size_t done = 0;
  size_t at = trie.empty() ? text.size() : 0;
  while (at < text.size()) {
    if (!starts[static_cast<unsigned char>(text[at])]) {
      ++at;
      continue;
    }
    const AddedToken* found = nullptr;
    size_t length = 0;
    trie.Prefixes(text.substr(at), [&](size_t prefix, int32_t index) {
      const AddedToken& token = tokens_[static_cast<size_t>(index)];
      if (!token.special || policy.Allows(at, at + prefix)) {
        found = &token;
        length = prefix;
      }
      return true;
    });
    if (found == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at;
    size_t end = at + length;
    at = end;  // a match that is thrown away is not looked into again
    if (found->single_word && !StandsAlone(text, begin, end)) continue;
    if (found->lstrip) begin = SkipSpacesBack(text, begin, done);
    if (found->rstrip) end = SkipSpaces(text, end);
    if (begin > done) out.push_back({done, begin, nullptr});
    out.push_back({begin, end, found});
    done = end;
    at = std::max(at, end);
  }
  if (done < text.size()) out.push_back({done, text.size(), nullptr});
}

}  // namespace octavo::text
