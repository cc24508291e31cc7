#include "octavo/text/sentencepiece.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/text/decoder_stages.h"
#include "octavo/text/sentencepiece_bpe.h"
#include "octavo/text/unicode.h"

namespace octavo::text {
namespace {

constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";  // U+2581
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

class SentencePieceTokenizer : public Tokenizer {
 public:
  SentencePieceTokenizer(SentencePieceModel model, std::string_view bytes, std::string_view name,
                         const SentencePieceOptions& options);

  std::string Decode(std::span<const int32_t> ids, const DecodeOptions& options) const override;
  std::unique_ptr<DecodeState> StartDecode(const DecodeOptions& options) const override;
  int32_t vocabulary_size() const override { return size_; }
  std::optional<int32_t> Find(std::string_view token) const override;
  std::optional<std::string> Token(int32_t id) const override;
  bool IsSpecial(int32_t id) const override;
  std::optional<std::string> TokenBytes(int32_t id) const override;

  const SentencePieceModel& model() const { return model_; }
  const AddedToken* Added(int32_t id) const { return IsPiece(id) ? nullptr : added_.ById(id); }
  bool IsPiece(int32_t id) const { return id >= 0 && static_cast<size_t>(id) < model_.pieces.size(); }
  void Check(int32_t id, const DecodeOptions& options) const { CheckId(id, options); }
  std::string DecodePieces(const std::vector<int>& ids) const;

 private:
  bool TakesAnyBytes() const override { return true; }
  void EncodeText(std::string_view text, const SpecialPolicy& policy, bool add_special, std::vector<int32_t>& ids,
                  Encoding* detail) const override;
  void EncodePlain(std::string_view text, size_t offset, std::vector<int32_t>& ids, Encoding* detail) const;
  void AddRole(std::optional<int32_t> id, std::vector<int32_t>& ids, Encoding* detail) const;

  SentencePieceModel model_;
  sentencepiece::SentencePieceProcessor processor_;
  std::unique_ptr<SentencePieceBpe> fast_;  // null: the library encodes
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<BpeScratch>> idle_;
  AddedTokens added_;
  int32_t size_ = 0;
  bool add_bos_, add_eos_;
};

[[noreturn]] void Fail(std::string_view name, const std::string& status) {
  throw Error(ErrorCode::kFile, fmt::format("{}: the SentencePiece library refuses the model", name), status);
}

SentencePieceTokenizer::SentencePieceTokenizer(SentencePieceModel model, std::string_view bytes, std::string_view name,
                                               const SentencePieceOptions& options)
    : Tokenizer(""), model_(std::move(model)) {
  try {
    const auto status = processor_.LoadFromSerializedProto(absl::string_view(bytes.data(), bytes.size()));
    if (!status.ok()) Fail(name, status.ToString());
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    Fail(name, error.what());
  }
  constexpr std::string_view kKinds[] = {"Unigram", "BPE", "words", "characters"};
  description_ = fmt::format("SentencePiece, {}", kKinds[static_cast<size_t>(model_.kind) - 1]);
  size_ = static_cast<int32_t>(model_.pieces.size());
  const auto role = [&](int id) { return id >= 0 && id < size_ ? std::optional<int32_t>(id) : std::nullopt; };
  roles_ = {role(processor_.bos_id()), role(processor_.eos_id()), role(processor_.unk_id()), role(processor_.pad_id())};
  add_bos_ = options.add_bos && roles_.bos;
  // A model without BOS that has EOS was trained with that at the end.
  add_eos_ = (options.add_eos || !roles_.bos) && roles_.eos;
  std::vector<AddedToken> added;
  for (int32_t id = 0; id < size_; ++id) {
    const SentencePieceModel::Piece& piece = model_.pieces[static_cast<size_t>(id)];
    if (piece.type != PieceType::kControl && piece.type != PieceType::kUnknown) continue;
    AddedToken token;
    token.id = id;
    token.content = token.pattern = piece.text;
    token.special = true;
    added.push_back(std::move(token));
  }
  for (const AddedToken& token : options.added) {
    if (IsPiece(token.id)) continue;
    size_ = std::max(size_, token.id + 1);
    added.push_back(token);
  }
  added_ = AddedTokens(std::move(added));
  if (!options.library_only) fast_ = SentencePieceBpe::Make(model_);
}

void SentencePieceTokenizer::AddRole(std::optional<int32_t> id, std::vector<int32_t>& ids, Encoding* detail) const {
  ids.push_back(*id);
  if (detail == nullptr) return;
  detail->tokens.push_back(Token(*id).value_or(""));
  detail->bytes.push_back({});
  detail->chars.push_back({});
}

void SentencePieceTokenizer::EncodePlain(std::string_view text, size_t offset, std::vector<int32_t>& ids,
                                         Encoding* detail) const {
  const absl::string_view input(text.data(), text.size());
  if (detail == nullptr && fast_ != nullptr) {
    std::unique_ptr<BpeScratch> scratch;
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        scratch = std::move(idle_.back());
        idle_.pop_back();
      }
    }
    if (scratch == nullptr) scratch = std::make_unique<BpeScratch>();
    fast_->Encode(text, *scratch, ids);
    const std::lock_guard lock(mutex_);
    if (idle_.size() < 64) idle_.push_back(std::move(scratch));
    return;
  }
  if (detail == nullptr) {
    std::vector<int> found;
    const auto status = processor_.Encode(input, &found);
    if (!status.ok())
      throw Error(ErrorCode::kJob, "the SentencePiece library cannot encode the text", status.ToString());
    ids.insert(ids.end(), found.begin(), found.end());
    return;
  }
  const sentencepiece::ImmutableSentencePieceText found = processor_.EncodeAsImmutableProto(input);
  for (size_t i = 0; i < found.pieces_size(); ++i) {
    const auto piece = found.pieces(static_cast<int>(i));
    ids.push_back(static_cast<int32_t>(piece.id()));
    detail->tokens.push_back(piece.piece());
    detail->bytes.push_back(
        {static_cast<uint32_t>(offset + piece.begin()), static_cast<uint32_t>(offset + piece.end())});
  }
}

void SentencePieceTokenizer::EncodeText(std::string_view text, const SpecialPolicy& policy, bool add_special,
                                        std::vector<int32_t>& ids, Encoding* detail) const {
  if (add_special && add_bos_ && roles_.bos) AddRole(roles_.bos, ids, detail);
  std::vector<AddedMatch> matches;
  // The flags of added tokens look at characters, so only valid text is searched; the library takes anything.
  if (IsValidUtf8(text)) {
    added_.Find(text, false, policy, matches);
  } else {
    matches.push_back({0, text.size(), nullptr});
  }
  for (const AddedMatch& match : matches) {
    const std::string_view part = text.substr(match.begin, match.end - match.begin);
    if (match.token == nullptr) {
      EncodePlain(part, match.begin, ids, detail);
      continue;
    }
    ids.push_back(match.token->id);
    if (detail == nullptr) continue;
    detail->tokens.emplace_back(part);
    detail->bytes.push_back({static_cast<uint32_t>(match.begin), static_cast<uint32_t>(match.end)});
  }
  if (detail != nullptr) {
    // Bytes to characters, for all pieces of the text at once.
    std::vector<uint32_t> chars(text.size() + 1);
    uint32_t count = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      chars[i] = count;
      if (i + 1 == text.size() || !IsContinuation(text[i + 1])) ++count;
    }
    chars[text.size()] = count;
    for (size_t i = detail->chars.size(); i < detail->bytes.size(); ++i) {
      detail->chars.push_back({chars[detail->bytes[i].begin], chars[detail->bytes[i].end]});
    }
  }
  if (add_special && add_eos_ && roles_.eos) AddRole(roles_.eos, ids, detail);
}

std::string SentencePieceTokenizer::DecodePieces(const std::vector<int>& ids) const {
  std::string text;
  const auto status = processor_.Decode(ids, &text);
  if (!status.ok()) throw Error(ErrorCode::kJob, "the SentencePiece library cannot decode the ids", status.ToString());
  return text;
}

std::string SentencePieceTokenizer::Decode(std::span<const int32_t> ids, const DecodeOptions& options) const {
  std::string text;
  std::vector<int> run;
  for (int32_t id : ids) {
    CheckId(id, options);
    if (IsPiece(id)) {
      run.push_back(id);
      continue;
    }
    const AddedToken* added = added_.ById(id);
    if (added == nullptr || (options.skip_special && added->special)) continue;
    if (!run.empty()) text += DecodePieces(std::exchange(run, {}));
    text += added->content;
  }
  if (!run.empty()) text += DecodePieces(run);
  return text;
}

// The library's way from pieces to text, one piece at a time.
class SentencePieceDecode : public DecodeState {
 public:
  SentencePieceDecode(const SentencePieceTokenizer& tokenizer, const DecodeOptions& options)
      : tokenizer_(tokenizer), model_(tokenizer.model()), options_(options) {}

  void Push(int32_t id, std::string& out) override {
    tokenizer_.Check(id, options_);
    if (!tokenizer_.IsPiece(id)) {
      const AddedToken* added = tokenizer_.Added(id);
      if (added == nullptr || (options_.skip_special && added->special)) return;
      Finish(out);
      out += added->content;
      at_start_ = true;
      return;
    }
    if (!model_.decode_charsmap.empty()) {  // text that is rewritten as a whole cannot flow
      held_.push_back(id);
      return;
    }
    const SentencePieceModel::Piece& piece = model_.pieces[static_cast<size_t>(id)];
    if (piece.type == PieceType::kByte) {
      bytes_.push_back(static_cast<char>(std::max(0, FallbackByte(piece.text))));
      DrainBytes(out, false);
      return;
    }
    DrainBytes(out, true);
    if (piece.type == PieceType::kControl) return;
    if (piece.type == PieceType::kUnknown) {
      Emit(model_.unknown_surface, out);
      return;
    }
    std::string_view text = piece.text;
    bool seen = false;
    if (!model_.space_as_suffix && at_start_ && (model_.add_dummy_prefix || model_.remove_extra_spaces)) {
      seen = text.starts_with(kSpaceSymbol);
      if (seen) text.remove_prefix(kSpaceSymbol.size());
      // Where extra spaces are removed, all leading ones go.
      if (model_.remove_extra_spaces) seen = false;
    }
    std::string spaced;
    while (!text.empty()) {
      const bool space = text.starts_with(kSpaceSymbol);
      spaced.push_back(space ? ' ' : text[0]);
      text.remove_prefix(space ? kSpaceSymbol.size() : 1);
    }
    Emit(spaced, out);
    if (seen) at_start_ = false;
  }

  void Finish(std::string& out) override {
    if (!held_.empty()) out += tokenizer_.DecodePieces(std::exchange(held_, {}));
    DrainBytes(out, true);
    space_waits_ = false;  // the space at the very end belongs to the suffix
  }

 private:
  void Emit(std::string_view text, std::string& out) {
    if (text.empty()) return;
    if (std::exchange(space_waits_, false)) out.push_back(' ');
    at_start_ = false;
    if (model_.space_as_suffix && text.ends_with(' ')) {
      space_waits_ = true;
      text.remove_suffix(1);
    }
    out += text;
  }

  // Lets out whole characters, and one U+FFFD for each byte that cannot be part of one.
  void DrainBytes(std::string& out, bool all) {
    while (!bytes_.empty()) {
      if (const int length = ValidLength(bytes_); length > 0) {
        Emit(bytes_.substr(0, static_cast<size_t>(length)), out);
        bytes_.erase(0, static_cast<size_t>(length));
      } else if (all || CompletePrefix(bytes_) > 0) {
        Emit(kReplacement, out);
        bytes_.erase(0, 1);
      } else {
        return;
      }
    }
  }

  const SentencePieceTokenizer& tokenizer_;
  const SentencePieceModel& model_;
  DecodeOptions options_;
  bool at_start_ = true;
  std::string bytes_;         // byte pieces that are no character yet
  bool space_waits_ = false;  // it is dropped at the end
  std::vector<int> held_;
};

std::unique_ptr<DecodeState> SentencePieceTokenizer::StartDecode(const DecodeOptions& options) const {
  return std::make_unique<SentencePieceDecode>(*this, options);
}

std::optional<int32_t> SentencePieceTokenizer::Find(std::string_view token) const {
  if (const AddedToken* added = added_.ByContent(token)) return added->id;
  const int id = processor_.PieceToId(absl::string_view(token.data(), token.size()));
  if (id < 0 || !IsPiece(id) || model_.pieces[static_cast<size_t>(id)].text != token) return std::nullopt;
  return id;
}

std::optional<std::string> SentencePieceTokenizer::Token(int32_t id) const {
  if (IsPiece(id)) return model_.pieces[static_cast<size_t>(id)].text;
  const AddedToken* added = added_.ById(id);
  return added == nullptr ? std::nullopt : std::optional(added->content);
}

bool SentencePieceTokenizer::IsSpecial(int32_t id) const {
  const AddedToken* added = added_.ById(id);
  return added != nullptr && added->special;
}

std::optional<std::string> SentencePieceTokenizer::TokenBytes(int32_t id) const {
  if (!model_.decode_charsmap.empty()) return std::nullopt;  // text that is rewritten as a whole
  if (!IsPiece(id)) {
    const AddedToken* added = added_.ById(id);
    return added == nullptr || added->special ? std::nullopt : std::optional(added->content);
  }
  const SentencePieceModel::Piece& piece = model_.pieces[static_cast<size_t>(id)];
  if (piece.type == PieceType::kControl || piece.type == PieceType::kUnknown) return std::nullopt;
  if (piece.type == PieceType::kByte) return std::string(1, static_cast<char>(std::max(0, FallbackByte(piece.text))));
  std::string bytes;
  for (std::string_view text = piece.text; !text.empty();) {
    const bool space = text.starts_with(kSpaceSymbol);
    bytes.push_back(space ? ' ' : text[0]);
    text.remove_prefix(space ? kSpaceSymbol.size() : 1);
  }
  return bytes;
}

}  // namespace

std::unique_ptr<Tokenizer> ParseSentencePiece(std::string_view bytes, std::string_view name,
                                              const SentencePieceOptions& options) {
  return std::make_unique<SentencePieceTokenizer>(ReadSentencePieceModel(bytes, name), bytes, name, options);
}

std::unique_ptr<Tokenizer> MakeSentencePiece(const SentencePieceModel& model, std::string_view name,
                                             const SentencePieceOptions& options) {
  const std::string bytes = WriteSentencePieceModel(model);
  return ParseSentencePiece(bytes, name, options);
}

}  // namespace octavo::text
