#include "octavo/text/unigram.h"

#include <algorithm>
#include <limits>

#include "octavo/base/error.h"
#include "octavo/text/unicode.h"

namespace octavo::text {
namespace {

constexpr double kUnknownPenalty = 10.0;

// The best way to reach a byte of the word.
struct Best {
  double score = 0;
  uint32_t begin = 0;
  int32_t id = -1;  // -1: not reached yet
};

struct UnigramScratch : ModelScratch {
  std::vector<Best> best;
  std::vector<ModelToken> reversed;
};

}  // namespace

Unigram::Unigram(const std::vector<std::pair<std::string, double>>& pieces, std::optional<int64_t> unknown_id,
                 bool byte_fallback)
    : byte_fallback_(byte_fallback) {
  if (unknown_id) {
    if (*unknown_id < 0 || *unknown_id >= static_cast<int64_t>(pieces.size())) {
      ThrowFile("unk_id {} is outside the vocabulary of {} pieces", *unknown_id, pieces.size());
    }
    unknown_id_ = static_cast<int32_t>(*unknown_id);
  }
  vocabulary_.Reserve(pieces.size(), pieces.size() * 8);
  std::vector<std::pair<std::string_view, int32_t>> entries;
  double least = std::numeric_limits<double>::infinity();
  for (size_t id = 0; id < pieces.size(); ++id) {
    vocabulary_.Add(pieces[id].first, static_cast<int64_t>(id));
    entries.emplace_back(pieces[id].first, static_cast<int32_t>(id));
    scores_.push_back(pieces[id].second);
    least = std::min(least, pieces[id].second);
  }
  unknown_score_ = least - kUnknownPenalty;
  trie_ = ByteTrie(std::move(entries));
  for (size_t byte = 0; byte < 256; ++byte) {
    fallback_ids_[byte] = vocabulary_.Find(fmt::format("<0x{:02X}>", byte)).value_or(-1);
  }
}

std::unique_ptr<ModelScratch> Unigram::MakeScratch() const { return std::make_unique<UnigramScratch>(); }

void Unigram::Tokenize(std::string_view word, bool plain, ModelScratch& scratch, std::vector<ModelToken>& out) const {
  auto& work = static_cast<UnigramScratch&>(scratch);
  std::vector<Best>& best = work.best;
  best.assign(word.size() + 1, Best{});
  const auto relax = [&](size_t begin, size_t end, double score, int32_t id) {
    const double candidate = score + best[begin].score;
    if (best[end].id < 0 || candidate > best[end].score) best[end] = {candidate, static_cast<uint32_t>(begin), id};
  };
  for (size_t at = 0; at < word.size();) {
    const auto char_length = static_cast<size_t>(LeadLength(static_cast<unsigned char>(word[at])));
    bool whole_char = false;
    trie_.Prefixes(word.substr(at), [&](size_t length, int32_t id) {
      if (Blocked(id, plain)) return true;
      relax(at, at + length, scores_[static_cast<size_t>(id)], id);
      whole_char = whole_char || length == char_length;
      return true;
    });
    if (!whole_char) {
      if (unknown_id_ < 0) {
        throw Error(ErrorCode::kUsage, "text holds a character that the tokenizer does not know, and it has no unk_id",
                    fmt::format("near '{}'", ReplaceInvalidUtf8(word.substr(at, 16))));
      }
      relax(at, at + char_length, unknown_score_, unknown_id_);
    }
    at += char_length;
  }

  // From the end back to the start. Unknown stretches that follow each other become one.
  work.reversed.clear();
  bool open_unknown = false;
  for (auto end = static_cast<uint32_t>(word.size()); end > 0;) {
    const Best& step = best[end];
    const bool unknown = step.id == unknown_id_;
    if (unknown && open_unknown) {
      work.reversed.back().begin = step.begin;
    } else {
      work.reversed.push_back({step.id, step.begin, end, unknown});
    }
    open_unknown = unknown;
    end = step.begin;
  }
  for (auto token = work.reversed.rbegin(); token != work.reversed.rend(); ++token) {
    if (token->surface) {
      PushUnknown(word, token->begin, token->end, plain, out);
    } else {
      out.push_back(*token);
    }
  }
}

// An unknown stretch: as a whole it may be a piece after all; else its bytes; else the unknown token.
void Unigram::PushUnknown(std::string_view word, uint32_t begin, uint32_t end, bool plain,
                          std::vector<ModelToken>& out) const {
  const std::string_view text = word.substr(begin, end - begin);
  if (const std::optional<int32_t> id = vocabulary_.Find(text); id && !Blocked(*id, plain)) {
    out.push_back({*id, begin, end});
    return;
  }
  if (byte_fallback_ && std::all_of(text.begin(), text.end(), [&](char byte) {
        const int32_t id = fallback_ids_[static_cast<unsigned char>(byte)];
        return id >= 0 && !Blocked(id, plain);
      })) {
    for (char byte : text) out.push_back({fallback_ids_[static_cast<unsigned char>(byte)], begin, end});
    return;
  }
  out.push_back({unknown_id_, begin, end, true});
}

}  // namespace octavo::text
