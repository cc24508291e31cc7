#include "octavo/text/tokenizer_pipeline.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/text/decoder_stages.h"
#include "octavo/text/tokenizer_bytechars.h"
#include "octavo/text/unicode.h"

namespace octavo::text {

namespace {

// What short pieces between two cuts became: patterns that cut one after the other leave the same few again and again,
// and a search costs more than they do.
struct ShortPiece {
  static constexpr size_t kMaxBytes = 8;
  static constexpr size_t kMaxIds = 8;
  uint64_t text = 0;
  uint32_t kind = 0;  // length, cut, plain; 0: empty
  uint32_t count = 0;
  int32_t ids[kMaxIds] = {};
};
constexpr size_t kShortPieces = 512;

}  // namespace

struct Pipeline::Scratch {
  std::vector<ShortPiece> pieces;
  RegexScratch regex;
  std::unique_ptr<ModelScratch> model;
  std::vector<AddedMatch> matches, matches_after;
  std::vector<ModelToken> tokens;
};

// Holds a scratch for one call.
class Pipeline::Lease {
 public:
  explicit Lease(const Pipeline& pipeline) : pipeline_(pipeline), scratch_(pipeline.TakeScratch()) {}
  ~Lease() { pipeline_.GiveBack(std::move(scratch_)); }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  Scratch& operator*() { return *scratch_; }

 private:
  const Pipeline& pipeline_;
  std::unique_ptr<Scratch> scratch_;
};

Pipeline::Pipeline(PipelineParts parts)
    : Tokenizer(std::move(parts.description)),
      added_(std::move(parts.added)),
      normalizer_(std::move(parts.normalizer)),
      pretokenizer_(std::move(parts.pretokenizer)),
      model_(std::move(parts.model)),
      post_(std::move(parts.post)),
      decoder_(std::move(parts.decoder)) {
  notes_ = std::move(parts.notes);
  vocabulary_size_ = model_->vocabulary().size();
  std::unordered_set<std::string_view> special_texts;
  for (const AddedToken& token : added_.tokens()) {
    vocabulary_size_ = std::max(vocabulary_size_, token.id + 1);
    if (token.special) special_texts.insert(token.content);
    special_after_ = special_after_ || (token.special && token.normalized);
  }
  special_.resize(static_cast<size_t>(vocabulary_size_));
  skipped_.resize(static_cast<size_t>(vocabulary_size_));
  for (const AddedToken& token : added_.tokens()) {
    if (token.special) special_[static_cast<size_t>(token.id)] = true;
  }
  for (int32_t id = 0; id < vocabulary_size_; ++id) {
    const std::optional<std::string_view> text = DecodeText(id, false);
    skipped_[static_cast<size_t>(id)] = text && special_texts.contains(*text);
  }
  model_->SetSpecial(special_);
  const auto* bpe = dynamic_cast<const Bpe*>(model_.get());
  if (bpe != nullptr && bpe->CanEncodeBytes() && pretokenizer_ != nullptr && pretokenizer_->Describe(cuts_) &&
      cuts_.ends_in_bytes) {
    byte_bpe_ = bpe;
  }
  if (decoder_.IsByteLevelOnly()) InitDecodeTable();
}

Pipeline::~Pipeline() = default;

std::unique_ptr<Pipeline::Scratch> Pipeline::TakeScratch() const {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      std::unique_ptr<Scratch> scratch = std::move(idle_.back());
      idle_.pop_back();
      return scratch;
    }
  }
  auto scratch = std::make_unique<Scratch>();
  scratch->model = model_->MakeScratch();
  return scratch;
}

void Pipeline::GiveBack(std::unique_ptr<Scratch> scratch) const {
  constexpr size_t kMostIdle = 64;
  const std::lock_guard lock(mutex_);
  if (idle_.size() < kMostIdle) idle_.push_back(std::move(scratch));
}

void Pipeline::EncodeText(std::string_view text, const SpecialPolicy& policy, bool add_special,
                          std::vector<int32_t>& ids, Encoding* detail) const {
  // Trusted ranges are bytes of the original, which only the detailed way knows after normalization.
  const bool ranges_after = !policy.trusted.empty() && special_after_ && normalizer_ != nullptr;
  const bool origin_matters = pretokenizer_ != nullptr && pretokenizer_->NeedsOrigin() && normalizer_ != nullptr;
  if (detail != nullptr || byte_bpe_ == nullptr || ranges_after) {
    EncodeDetailed(text, policy, add_special, detail != nullptr || ranges_after || origin_matters, ids, detail);
    return;
  }
  Lease lease(*this);
  (*lease).regex.BeginRequest(text.size());
  EncodeBytesFast(text, policy, *lease, ids);
  RawEncoding raw;
  raw.ids = std::move(ids);
  post_.Apply(raw, add_special, false);
  ids = std::move(raw.ids);
}

// ---------------------------------------------------------------------------------------------------------------------
// The fast way: byte-level BPE, ids only.

void Pipeline::EncodeBytesFast(std::string_view text, const SpecialPolicy& policy, Scratch& scratch,
                               std::vector<int32_t>& ids) const {
  ids.reserve(ids.size() + text.size() / 3 + 8);
  const bool plain = !policy.parse || !policy.trusted.empty();
  scratch.matches.clear();
  added_.Find(text, false, policy, scratch.matches);
  for (const AddedMatch& match : scratch.matches) {
    if (match.token != nullptr) {
      ids.push_back(match.token->id);
      continue;
    }
    std::string_view rest = text.substr(match.begin, match.end - match.begin);
    std::string normalized;
    if (normalizer_ != nullptr && !normalizer_->Keeps(rest)) {
      AlignedText work(rest, false);
      normalizer_->Apply(work, scratch.regex);
      normalized = work.text();
      rest = normalized;
    }
    if (!added_.AnyAfter()) {
      EncodeChunk(rest, plain, scratch, ids);
      continue;
    }
    scratch.matches_after.clear();
    added_.Find(rest, true, policy, scratch.matches_after);
    for (const AddedMatch& after : scratch.matches_after) {
      if (after.token != nullptr) {
        ids.push_back(after.token->id);
      } else {
        EncodeChunk(rest.substr(after.begin, after.end - after.begin), plain, scratch, ids);
      }
    }
  }
}

void Pipeline::EncodeChunk(std::string_view text, bool plain, Scratch& scratch, std::vector<int32_t>& ids) const {
  if (text.empty()) return;
  if (cuts_.add_prefix_space && !text.starts_with(' ')) {
    std::string prefixed = " ";
    prefixed += text;
    EncodeCuts(prefixed, 0, plain, scratch, ids);
    return;
  }
  EncodeCuts(text, 0, plain, scratch, ids);
}

void Pipeline::EncodeCuts(std::string_view text, size_t cut, bool plain, Scratch& scratch,
                          std::vector<int32_t>& ids) const {
  if (cut == cuts_.cuts.size()) {
    byte_bpe_->EncodeBytes(text, plain, static_cast<BpeScratch&>(*scratch.model), ids);
    return;
  }
  if (cut > 0 && text.size() <= ShortPiece::kMaxBytes) {
    EncodeShort(text, cut, plain, scratch, ids);
    return;
  }
  CutAndEncode(text, cut, plain, scratch, ids);
}

void Pipeline::EncodeShort(std::string_view text, size_t cut, bool plain, Scratch& scratch,
                           std::vector<int32_t>& ids) const {
  if (scratch.pieces.empty()) scratch.pieces.resize(kShortPieces);
  uint64_t bytes = 0;
  std::memcpy(&bytes, text.data(), text.size());
  const auto kind = static_cast<uint32_t>(1 + text.size() + 16 * (2 * cut + (plain ? 1 : 0)));
  ShortPiece& piece = scratch.pieces[(bytes * 0x9E3779B97F4A7C15ULL + kind * 0x632BE5ABU) >> 55];
  if (piece.text == bytes && piece.kind == kind) {
    ids.insert(ids.end(), piece.ids, piece.ids + piece.count);
    return;
  }
  const size_t first = ids.size();
  CutAndEncode(text, cut, plain, scratch, ids);
  const size_t count = ids.size() - first;
  if (count > ShortPiece::kMaxIds) return;
  piece.text = bytes;
  piece.kind = kind;
  piece.count = static_cast<uint32_t>(count);
  std::copy(ids.begin() + static_cast<ptrdiff_t>(first), ids.end(), piece.ids);
}

void Pipeline::CutAndEncode(std::string_view text, size_t cut, bool plain, Scratch& scratch,
                            std::vector<int32_t>& ids) const {
  auto& bpe_scratch = static_cast<BpeScratch&>(*scratch.model);
  const bool last = cut + 1 == cuts_.cuts.size();
  if (const WordScanner scanner = cuts_.cuts[cut].scanner) {
    const CharClasses& classes = CharClasses::Table();
    const char* at = text.data();
    const char* const end = at + text.size();
    while (at < end) {
      const char* next = scanner(classes, at, end);
      const std::string_view word(at, static_cast<size_t>(next - at));
      if (last) {
        byte_bpe_->EncodeBytes(word, plain, bpe_scratch, ids);
      } else {
        EncodeCuts(word, cut + 1, plain, scratch, ids);
      }
      at = next;
    }
    return;
  }
  // The matches are gathered first: the scratch of a regular expression holds one search at a time.
  std::vector<size_t> edges;
  cuts_.cuts[cut].regex->FindAll(text, scratch.regex, [&](size_t begin, size_t end) {
    edges.push_back(begin);
    edges.push_back(end);
  });
  edges.push_back(text.size());
  size_t done = 0;
  for (size_t edge : edges) {
    if (edge > done) EncodeCuts(text.substr(done, edge - done), cut + 1, plain, scratch, ids);
    done = std::max(done, edge);
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// The detailed way.

std::vector<Piece> Pipeline::Pieces(std::string_view text, const SpecialPolicy& policy, bool tracked,
                                    RegexScratch& regex) const {
  std::vector<AddedMatch> matches;
  std::vector<Piece> pieces;
  const AlignedText whole(text, tracked);
  added_.Find(text, false, policy, matches);
  std::vector<AddedMatch> after;
  for (const AddedMatch& match : matches) {
    AlignedText piece = whole.Slice(match.begin, match.end);
    if (match.token != nullptr) {
      pieces.push_back({std::move(piece), match.token->id});
      continue;
    }
    if (normalizer_ != nullptr) normalizer_->Apply(piece, regex);
    after.clear();
    // Without tracking there are no ranges to mind here.
    SpecialPolicy policy_after = policy;
    std::vector<Span> ranges;
    if (tracked && !policy.trusted.empty()) {
      ranges = piece.RangesOf(policy.trusted);
      policy_after = {!ranges.empty(), ranges};
    } else if (!policy.trusted.empty()) {
      policy_after = {false, {}};
    }
    added_.Find(piece.text(), true, policy_after, after);
    for (const AddedMatch& found : after) {
      pieces.push_back({piece.Slice(found.begin, found.end), found.token != nullptr ? found.token->id : -1});
    }
  }
  if (pretokenizer_ != nullptr) pretokenizer_->Apply(pieces, regex);
  return pieces;
}

namespace {

// Byte positions to character positions of one text, the way the reference library converts offsets.
class CharPositions {
 public:
  explicit CharPositions(std::string_view text) : bytes_(text.size()) {
    chars_.reserve(text.size());
    uint32_t count = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      if (!IsContinuation(text[i])) {
        starts_.push_back(static_cast<uint32_t>(i));
        ++count;
      }
      chars_.push_back(count - 1);
    }
    starts_.push_back(static_cast<uint32_t>(text.size()));
  }

  Span ToChars(Span bytes) const {
    if (bytes.begin >= bytes_) return bytes;  // as the reference does
    const uint32_t begin = chars_[bytes.begin];
    if (bytes.end < bytes_) return {begin, chars_[bytes.end]};
    return {begin, bytes.end >= 1 && bytes.end - 1 < bytes_ ? chars_[bytes.end - 1] + 1 : begin + 1};
  }

  Span ToBytes(Span chars) const {
    const auto at = [&](uint32_t i) { return starts_[std::min<size_t>(i, starts_.size() - 1)]; };
    return {at(chars.begin), at(chars.end)};
  }

 private:
  size_t bytes_;
  std::vector<uint32_t> chars_;   // by byte
  std::vector<uint32_t> starts_;  // by character, and the end
};

}  // namespace

void Pipeline::EncodeDetailed(std::string_view text, const SpecialPolicy& policy, bool add_special, bool tracked,
                              std::vector<int32_t>& ids, Encoding* detail) const {
  Lease lease(*this);
  Scratch& scratch = *lease;
  scratch.regex.BeginRequest(text.size());
  const bool plain = !policy.parse || !policy.trusted.empty();
  const std::vector<Piece> pieces = Pieces(text, policy, tracked, scratch.regex);
  RawEncoding raw;
  if (detail == nullptr) {
    for (const Piece& piece : pieces) {
      if (piece.added_id >= 0) {
        raw.ids.push_back(piece.added_id);
      } else if (!piece.text.empty()) {
        model_->Encode(piece.text.text(), plain, *scratch.model, raw.ids);
      }
    }
    post_.Apply(raw, add_special, false);
    ids.insert(ids.end(), raw.ids.begin(), raw.ids.end());
    return;
  }
  const CharPositions positions(text);
  for (const Piece& piece : pieces) {
    const std::string& word = piece.text.text();
    scratch.tokens.clear();
    if (piece.added_id >= 0) {
      scratch.tokens.push_back({piece.added_id, 0, static_cast<uint32_t>(word.size()), true});
    } else if (!word.empty()) {
      model_->Tokenize(word, plain, *scratch.model, scratch.tokens);
    }
    for (const ModelToken& token : scratch.tokens) {
      raw.ids.push_back(token.id);
      raw.tokens.emplace_back(token.surface ? std::string_view(word).substr(token.begin, token.end - token.begin)
                                            : model_->vocabulary().Text(token.id).value_or(""));
      raw.chars.push_back(positions.ToChars(piece.text.Original(token.begin, token.end)));
    }
  }
  post_.Apply(raw, add_special, true);
  for (const Span& span : raw.chars) detail->bytes.push_back(positions.ToBytes(span));
  detail->tokens = std::move(raw.tokens);
  detail->chars = std::move(raw.chars);
  ids.insert(ids.end(), raw.ids.begin(), raw.ids.end());
}

// ---------------------------------------------------------------------------------------------------------------------
// Decoding and look-ups.

std::optional<std::string_view> Pipeline::DecodeText(int32_t id, bool skip_special) const {
  if (id < 0 || id >= vocabulary_size_) return std::nullopt;
  if (skip_special && skipped_[static_cast<size_t>(id)]) return std::nullopt;
  if (const AddedToken* token = added_.ById(id)) return token->pattern;
  return model_->vocabulary().Text(id);
}

void Pipeline::InitDecodeTable() {
  decode_ends_.reserve(static_cast<size_t>(vocabulary_size_));
  for (int32_t id = 0; id < vocabulary_size_; ++id) {
    if (const std::optional<std::string_view> text = DecodeText(id, false)) {
      decode_bytes_ += CharsToBytes(*text).value_or(std::string(*text));
    }
    decode_ends_.push_back(static_cast<uint32_t>(decode_bytes_.size()));
  }
}

std::string Pipeline::Decode(std::span<const int32_t> ids, const DecodeOptions& options) const {
  std::string text;
  if (!decode_ends_.empty()) {
    text.reserve(ids.size() * 5);
    for (int32_t id : ids) {
      CheckId(id, options);
      if (id < 0 || id >= vocabulary_size_ || (options.skip_special && skipped_[static_cast<size_t>(id)])) continue;
      const auto index = static_cast<size_t>(id);
      const uint32_t begin = index == 0 ? 0 : decode_ends_[index - 1];
      text.append(decode_bytes_, begin, decode_ends_[index] - begin);
    }
    return IsValidUtf8(text) ? text : ReplaceInvalidUtf8(text);
  }
  DecodeRun run = decoder_.Start(DecodeMode::kWhole);
  for (int32_t id : ids) {
    CheckId(id, options);
    if (const std::optional<std::string_view> token = DecodeText(id, options.skip_special)) run.Push(*token, text);
  }
  run.Finish(text);
  return text;
}

namespace {

class PipelineDecode : public DecodeState {
 public:
  PipelineDecode(const Pipeline& pipeline, DecodeRun run, const DecodeOptions& options,
                 std::function<void(int32_t)> check)
      : pipeline_(pipeline), run_(std::move(run)), options_(options), check_(std::move(check)) {}
  void Push(int32_t id, std::string& out) override {
    check_(id);
    if (const std::optional<std::string_view> token = pipeline_.DecodeText(id, options_.skip_special))
      run_.Push(*token, out);
  }
  void Finish(std::string& out) override { run_.Finish(out); }

 private:
  const Pipeline& pipeline_;
  DecodeRun run_;
  DecodeOptions options_;
  std::function<void(int32_t)> check_;
};

}  // namespace

std::optional<std::string> Pipeline::TokenBytes(int32_t id) const {
  if (id < 0 || id >= vocabulary_size_ || IsSpecial(id) || id == roles_.unknown) return std::nullopt;
  const std::optional<std::string_view> text = DecodeText(id, true);
  return text ? decoder_.BytesOf(*text) : std::nullopt;
}

std::unique_ptr<DecodeState> Pipeline::StartDecode(const DecodeOptions& options) const {
  return std::make_unique<PipelineDecode>(*this, decoder_.Start(DecodeMode::kStream), options,
                                          [this, options](int32_t id) { CheckId(id, options); });
}

std::optional<int32_t> Pipeline::Find(std::string_view token) const {
  if (const AddedToken* added = added_.ByContent(token)) return added->id;
  return model_->vocabulary().Find(token);
}

std::optional<std::string> Pipeline::Token(int32_t id) const {
  if (const AddedToken* added = added_.ById(id)) return added->content;
  if (const std::optional<std::string_view> text = model_->vocabulary().Text(id)) return std::string(*text);
  return std::nullopt;
}

bool Pipeline::IsSpecial(int32_t id) const {
  return id >= 0 && id < vocabulary_size_ && special_[static_cast<size_t>(id)];
}

}  // namespace octavo::text
