#include "octavo/text/tokenizer.h"

#include "octavo/base/error.h"
#include "octavo/text/unicode.h"

namespace octavo::text {
namespace {

constexpr size_t kMaxText = size_t{1} << 30;

void CheckLength(size_t bytes) {
  if (bytes > kMaxText) ThrowUsage("text of {} bytes: at most {} can be encoded at once", bytes, kMaxText);
}

}  // namespace

std::vector<int32_t> Tokenizer::Encode(std::string_view text, const EncodeOptions& options) const {
  CheckLength(text.size());
  std::vector<int32_t> ids;
  const SpecialPolicy policy{options.parse_special, {}};
  if (TakesAnyBytes() || IsValidUtf8(text)) {
    EncodeText(text, policy, options.add_special, ids, nullptr);
  } else {
    EncodeText(ReplaceInvalidUtf8(text), policy, options.add_special, ids, nullptr);
  }
  return ids;
}

std::vector<int32_t> Tokenizer::Encode(std::span<const TextPiece> pieces, bool add_special) const {
  std::string text;
  std::vector<Span> trusted;
  for (const TextPiece& piece : pieces) {
    CheckLength(text.size() + piece.text.size());
    const auto begin = static_cast<uint32_t>(text.size());
    text += TakesAnyBytes() ? std::string(piece.text) : ReplaceInvalidUtf8(piece.text);
    const auto end = static_cast<uint32_t>(text.size());
    if (!piece.trusted || begin == end) continue;
    if (!trusted.empty() && trusted.back().end == begin) {
      trusted.back().end = end;  // neighbours: a token may lie across
    } else {
      trusted.push_back({begin, end});
    }
  }
  std::vector<int32_t> ids;
  EncodeText(text, {!trusted.empty(), trusted}, add_special, ids, nullptr);
  return ids;
}

Encoding Tokenizer::EncodeWithOffsets(std::string_view text, const EncodeOptions& options) const {
  CheckLength(text.size());
  Encoding detail;
  std::vector<int32_t> ids;
  const SpecialPolicy policy{options.parse_special, {}};
  if (TakesAnyBytes() || IsValidUtf8(text)) {
    EncodeText(text, policy, options.add_special, ids, &detail);
  } else {
    EncodeText(ReplaceInvalidUtf8(text), policy, options.add_special, ids, &detail);
  }
  detail.ids = std::move(ids);
  return detail;
}

std::string Tokenizer::Decode(std::span<const int32_t> ids, const DecodeOptions& options) const {
  const std::unique_ptr<DecodeState> state = StartDecode(options);
  std::string text;
  for (int32_t id : ids) state->Push(id, text);
  state->Finish(text);
  return text;
}

void Tokenizer::CheckId(int32_t id, const DecodeOptions& options) const {
  if (options.skip_unknown_ids || (id >= 0 && id < vocabulary_size())) return;
  throw Error(ErrorCode::kUsage, fmt::format("token id {} is out of range", id),
              fmt::format("the tokenizer has ids 0 to {}", vocabulary_size() - 1));
}

}  // namespace octavo::text
