#include "octavo/text/bpe.h"

#include <algorithm>

#include "octavo/base/error.h"
#include "octavo/text/tokenizer_bytechars.h"
#include "octavo/text/unicode.h"

namespace octavo::text {
namespace {

constexpr char32_t kLowChars = 0x3000;  // direct table; ideographs and rarer ones go through the hash
constexpr char32_t kSpaceSymbol = 0x2581;
constexpr size_t kDirect = 129;  // ASCII and U+2581

// Place in the direct table of neighbours, or kDirect.
size_t DirectIndex(char32_t c) { return c < 128 ? c : c == kSpaceSymbol ? 128 : kDirect; }

std::string_view FirstChar(std::string_view text) {
  return text.substr(0, static_cast<size_t>(LeadLength(static_cast<unsigned char>(text[0]))));
}

std::string_view LastChar(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && IsContinuation(text[at])) --at;
  return text.substr(at);
}

}  // namespace

Bpe::Bpe(Vocabulary vocabulary, const std::vector<MergeRule>& merges, BpeOptions options)
    : merges_(merges.size()), options_(std::move(options)) {
  vocabulary_ = std::move(vocabulary);
  for (const MergeRule& merge : merges) merges_.Set(merge.left, merge.right, {merge.rank, merge.result});
  if (options_.unknown_token) {
    const std::optional<int32_t> id = vocabulary_.Find(*options_.unknown_token);
    if (!id) ThrowFile("unk_token '{}' is not in the vocabulary", options_.unknown_token->substr(0, 60));
    unknown_id_ = *id;
  }
  for (size_t byte = 0; byte < 256; ++byte) {
    fallback_ids_[byte] = vocabulary_.Find(fmt::format("<0x{:02X}>", byte)).value_or(-1);
  }
  InitChars();
  if (options_.continuing_prefix.empty() && options_.end_suffix.empty()) {
    InitTouching(merges);
    InitBytes();
  }
}

void Bpe::InitChars() {
  low_chars_.assign(kLowChars, -1);
  std::string text;
  for (char32_t c = 0; c < kLowChars; ++c) {
    text.clear();
    AppendUtf8(c, text);
    low_chars_[c] = vocabulary_.Find(text).value_or(-1);
  }
}

int32_t Bpe::CharId(char32_t c, bool plain) const {
  int32_t id;
  if (c < kLowChars) {
    id = low_chars_[c];
  } else {
    std::string text;  // four bytes at most: no allocation
    AppendUtf8(c, text);
    id = vocabulary_.Find(text).value_or(-1);
  }
  return special_matters_ && id >= 0 && Blocked(id, plain) ? -1 : id;
}

void Bpe::InitTouching(const std::vector<MergeRule>& merges) {
  // A merge over <0xAB> or the unknown token would join symbols that are no characters: then nothing is known.
  std::vector<bool> odd(static_cast<size_t>(vocabulary_.size()));
  for (int32_t id : fallback_ids_) {
    if (id >= 0) odd[static_cast<size_t>(id)] = true;
  }
  if (unknown_id_ >= 0) {
    odd[static_cast<size_t>(unknown_id_)] = true;
  } else if (!options_.byte_fallback ||
             std::find(fallback_ids_.begin(), fallback_ids_.end(), -1) != fallback_ids_.end()) {
    return;  // a character that is nothing vanishes, and its neighbours meet
  }
  auto touching = std::make_unique<MergeMap>(merges.size());
  std::vector<char> direct(kDirect * kDirect);
  for (const MergeRule& merge : merges) {
    if (odd[static_cast<size_t>(merge.left)] || odd[static_cast<size_t>(merge.right)]) return;
    const std::string_view left = *vocabulary_.Text(merge.left);
    const std::string_view right = *vocabulary_.Text(merge.right);
    if (left.empty() || right.empty()) return;
    const std::string_view last = LastChar(left);
    const std::string_view first = FirstChar(right);
    const std::optional<int32_t> last_id = vocabulary_.Find(last);
    const std::optional<int32_t> first_id = vocabulary_.Find(first);
    // Without its characters in the vocabulary a token is never built, and its merge never happens.
    if (!last_id || !first_id) continue;
    touching->Set(*last_id, *first_id, {0, 0});
    const char* p = last.data();
    const char* q = first.data();
    const size_t row = DirectIndex(NextChar(p));
    const size_t column = DirectIndex(NextChar(q));
    if (row < kDirect && column < kDirect) direct[row * kDirect + column] = 1;
  }
  touching_ = std::move(touching);
  ascii_touching_ = std::move(direct);
}

bool Bpe::MayTouch(char32_t left, int32_t left_id, char32_t right, int32_t right_id) const {
  const size_t row = DirectIndex(left);
  const size_t column = DirectIndex(right);
  if (row < kDirect && column < kDirect) return ascii_touching_[row * kDirect + column] != 0;
  return touching_->Find(left_id, right_id).id >= 0;
}

void Bpe::InitBytes() {
  std::vector<int32_t> ids(256);
  for (size_t byte = 0; byte < 256; ++byte) {
    ids[byte] = CharId(ByteChars256()[byte], false);
    if (ids[byte] < 0) return;
  }
  byte_ids_ = std::move(ids);
  byte_pairs_.resize(256 * 256);
  for (size_t left = 0; left < 256; ++left) {
    for (size_t right = 0; right < 256; ++right) {
      byte_pairs_[left * 256 + right] = merges_.Find(byte_ids_[left], byte_ids_[right]);
    }
  }
  if (!options_.ignore_merges) return;
  byte_words_.Reserve(vocabulary_.count(), vocabulary_.count() * 8);
  for (int32_t id = 0; id < vocabulary_.size(); ++id) {
    const std::optional<std::string_view> text = vocabulary_.Text(id);
    if (!text) continue;
    if (const std::optional<std::string> bytes = CharsToBytes(*text)) byte_words_.Add(*bytes, id);
  }
}

void Bpe::SetSpecial(const std::vector<bool>& special) {
  special_ = special;
  special_matters_ = false;
  for (int32_t id = 0; id < vocabulary_.size(); ++id) {
    const std::optional<std::string_view> text = vocabulary_.Text(id);
    if (!text || !Blocked(id, true)) continue;
    if (options_.ignore_merges || CountChars(*text) == 1) special_matters_ = true;
  }
  auto plain = std::make_unique<MergeMap>(merges_.size());
  if (merges_.CopyWithout([&](int32_t id) { return Blocked(id, true); }, *plain)) {
    plain_merges_ = std::move(plain);
    special_matters_ = true;
  }
}

std::unique_ptr<ModelScratch> Bpe::MakeScratch() const { return std::make_unique<BpeScratch>(); }

// Appends the first symbols of a word: characters, bytes, or the unknown token, which may swallow its neighbours.
// Returns their length together: a character that is nothing of these vanishes with its place, as in the reference
// library.
uint32_t Bpe::AddSymbols(std::string_view word, bool plain, std::vector<Symbol>& symbols) const {
  uint32_t placed = 0;
  bool open_unknown = false;
  const bool decorated = !options_.continuing_prefix.empty() || !options_.end_suffix.empty();
  std::string spelled;
  const char* at = word.data();
  const char* const end = at + word.size();
  while (at < end) {
    const char* begin = at;
    const char32_t c = NextChar(at);
    const std::string_view text(begin, static_cast<size_t>(at - begin));
    std::string_view looked_up = text;
    int32_t id;
    if (decorated) {
      spelled = (begin != word.data() ? options_.continuing_prefix : std::string()) + std::string(text);
      if (at == end) spelled += options_.end_suffix;
      looked_up = spelled;
      id = vocabulary_.Find(spelled).value_or(-1);
      if (id >= 0 && Blocked(id, plain)) id = -1;
    } else {
      id = CharId(c, plain);
    }
    if (id >= 0) {
      symbols.push_back({id, placed});
      placed += static_cast<uint32_t>(text.size());
      open_unknown = false;
      continue;
    }
    const auto is_byte = [&](char byte) {
      const int32_t byte_id = fallback_ids_[static_cast<unsigned char>(byte)];
      return byte_id >= 0 && !Blocked(byte_id, plain);
    };
    if (options_.byte_fallback && std::all_of(looked_up.begin(), looked_up.end(), is_byte)) {
      for (char byte : looked_up) symbols.push_back({fallback_ids_[static_cast<unsigned char>(byte)], placed++});
      open_unknown = false;
      continue;
    }
    if (unknown_id_ < 0) continue;
    if (!open_unknown || !options_.fuse_unknown) symbols.push_back({unknown_id_, placed});
    placed += static_cast<uint32_t>(text.size());
    open_unknown = true;
  }
  return placed;
}

void Bpe::MergeAll(bool plain, std::vector<Symbol>& symbols, MergeScratch& scratch) const {
  const MergeMap& merges = Merges(plain);
  scratch.pairs.resize(symbols.size());
  for (size_t i = 0; i + 1 < symbols.size(); ++i) scratch.pairs[i] = merges.Find(symbols[i].id, symbols[i + 1].id);
  MergeSymbols(merges, symbols, scratch);
}

void Bpe::Tokenize(std::string_view word, bool plain, ModelScratch& scratch, std::vector<ModelToken>& out) const {
  if (options_.ignore_merges) {
    if (const std::optional<int32_t> id = vocabulary_.Find(word); id && !Blocked(*id, plain)) {
      out.push_back({*id, 0, static_cast<uint32_t>(word.size())});
      return;
    }
  }
  auto& work = static_cast<BpeScratch&>(scratch);
  work.symbols.clear();
  const uint32_t placed = AddSymbols(word, plain, work.symbols);
  MergeAll(plain, work.symbols, work.merge);
  for (size_t i = 0; i < work.symbols.size(); ++i) {
    const uint32_t end = i + 1 < work.symbols.size() ? work.symbols[i + 1].begin : placed;
    out.push_back({work.symbols[i].id, work.symbols[i].begin, end});
  }
}

// Appends the ids that compute() leaves in scratch.symbols, or those of the same word seen before.
template <typename Compute>
void Bpe::Cached(std::string_view word, bool plain, BpeScratch& scratch, std::vector<int32_t>& out,
                 Compute compute) const {
  WordCache::Line* line = nullptr;
  uint64_t hash = 0;
  if (word.size() <= WordCache::kMaxWord) {
    hash = HashBytes(word.data(), word.size());
    line = &scratch.caches[plain && special_matters_ ? 1 : 0].At(hash);
    if (WordCache::Holds(*line, hash, word)) {
      out.insert(out.end(), line->ids, line->ids + line->count);
      return;
    }
  }
  scratch.symbols.clear();
  compute();
  const size_t first = out.size();
  for (const Symbol& symbol : scratch.symbols) out.push_back(symbol.id);
  const size_t count = out.size() - first;
  if (line != nullptr && count <= WordCache::kMaxTokens) WordCache::Fill(*line, hash, word, out.data() + first, count);
}

void Bpe::EncodeSegment(std::string_view segment, bool plain, BpeScratch& scratch, std::vector<int32_t>& out) const {
  Cached(segment, plain, scratch, out, [&] {
    AddSymbols(segment, plain, scratch.symbols);
    MergeAll(plain, scratch.symbols, scratch.merge);
  });
}

void Bpe::Encode(std::string_view word, bool plain, ModelScratch& scratch, std::vector<int32_t>& out) const {
  auto& work = static_cast<BpeScratch&>(scratch);
  if (options_.ignore_merges) {
    if (const std::optional<int32_t> id = vocabulary_.Find(word); id && !Blocked(*id, plain)) {
      out.push_back(*id);
      return;
    }
  }
  if (touching_ == nullptr) {
    EncodeSegment(word, plain, work, out);
    return;
  }
  // Cut where no merge can reach across: the pieces are short and repeat, so that most come from the cache. Unknown
  // characters stay together, because they may fuse.
  const char* segment = word.data();
  const char* at = word.data();
  const char* const end = at + word.size();
  char32_t previous = NextChar(at);
  int32_t previous_id = CharId(previous, plain);
  while (at < end) {
    const char* here = at;
    const char32_t c = NextChar(at);
    const int32_t id = CharId(c, plain);
    const bool joined =
        previous_id >= 0 && id >= 0 ? MayTouch(previous, previous_id, c, id) : previous_id < 0 && id < 0;
    if (!joined) {
      EncodeSegment({segment, static_cast<size_t>(here - segment)}, plain, work, out);
      segment = here;
    }
    previous = c;
    previous_id = id;
  }
  EncodeSegment({segment, static_cast<size_t>(end - segment)}, plain, work, out);
}

void Bpe::EncodeBytes(std::string_view bytes, bool plain, BpeScratch& scratch, std::vector<int32_t>& out) const {
  Cached(bytes, plain, scratch, out, [&] {
    if (options_.ignore_merges) {
      if (const std::optional<int32_t> id = byte_words_.Find(bytes); id && !Blocked(*id, plain)) {
        scratch.symbols.push_back({*id, 0});
        return;
      }
    }
    scratch.symbols.resize(bytes.size());
    for (size_t i = 0; i < bytes.size(); ++i) {
      scratch.symbols[i] = {byte_ids_[static_cast<unsigned char>(bytes[i])], static_cast<uint32_t>(i)};
    }
    if (plain && plain_merges_) {
      MergeAll(plain, scratch.symbols, scratch.merge);
      return;
    }
    scratch.merge.pairs.resize(bytes.size());
    for (size_t i = 0; i + 1 < bytes.size(); ++i) {
      const size_t pair = static_cast<unsigned char>(bytes[i]) * size_t{256} + static_cast<unsigned char>(bytes[i + 1]);
      scratch.merge.pairs[i] = byte_pairs_[pair];
    }
    MergeSymbols(merges_, scratch.symbols, scratch.merge);
  });
}

}  // namespace octavo::text
