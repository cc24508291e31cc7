// The tokenizer that needs no vocabulary: every byte is a token.
#include <algorithm>

#include "octavo/base/error.h"
#include "octavo/text/decoder_stages.h"
#include "octavo/text/tokenizer.h"
#include "octavo/text/unicode.h"

namespace octavo::text {
namespace {

constexpr int32_t kBegin = 256;
constexpr int32_t kEnd = 257;
constexpr int32_t kSize = 258;

AddedToken Special(int32_t id, std::string_view content) {
  AddedToken token;
  token.id = id;
  token.content = token.pattern = content;
  token.special = true;
  return token;
}

class ByteTokenizer : public Tokenizer {
 public:
  ByteTokenizer() : Tokenizer("bytes"), added_({Special(kBegin, "<s>"), Special(kEnd, "</s>")}) {
    roles_.bos = kBegin;
    roles_.eos = kEnd;
  }

  int32_t vocabulary_size() const override { return kSize; }
  std::optional<int32_t> Find(std::string_view token) const override {
    if (const AddedToken* added = added_.ByContent(token)) return added->id;
    if (const int byte = FallbackByte(token); byte >= 0) return byte;
    if (token.size() == 1) return static_cast<unsigned char>(token[0]);
    return std::nullopt;
  }
  std::optional<std::string> Token(int32_t id) const override {
    if (const AddedToken* added = added_.ById(id)) return added->content;
    if (id < 0 || id >= 256) return std::nullopt;
    return id >= 0x21 && id < 0x7F ? std::string(1, static_cast<char>(id)) : fmt::format("<0x{:02X}>", id);
  }
  bool IsSpecial(int32_t id) const override { return id == kBegin || id == kEnd; }
  std::optional<std::string> TokenBytes(int32_t id) const override {
    if (id < 0 || id >= 256) return std::nullopt;
    return std::string(1, static_cast<char>(id));
  }

  // The bytes as they were, valid UTF-8 or not.
  std::string Decode(std::span<const int32_t> ids, const DecodeOptions& options) const override {
    std::string text;
    for (int32_t id : ids) Append(id, options, text);
    return text;
  }

  void Append(int32_t id, const DecodeOptions& options, std::string& text) const {
    CheckId(id, options);
    if (id >= 0 && id < 256) {
      text.push_back(static_cast<char>(id));
    } else if (const AddedToken* added = added_.ById(id); added != nullptr && !options.skip_special) {
      text += added->content;
    }
  }

  std::unique_ptr<DecodeState> StartDecode(const DecodeOptions& options) const override;

 private:
  bool TakesAnyBytes() const override { return true; }

  void EncodeText(std::string_view text, const SpecialPolicy& policy, bool add_special, std::vector<int32_t>& ids,
                  Encoding* detail) const override {
    const auto push = [&](int32_t id, size_t begin, size_t end) {
      ids.push_back(id);
      if (detail == nullptr) return;
      detail->tokens.push_back(*Token(id));
      detail->bytes.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(end)});
    };
    if (add_special) push(kBegin, 0, 0);
    std::vector<AddedMatch> matches;
    added_.Find(text, false, policy, matches);
    for (const AddedMatch& match : matches) {
      if (match.token != nullptr) {
        push(match.token->id, match.begin, match.end);
        continue;
      }
      for (size_t i = match.begin; i < match.end; ++i) push(static_cast<unsigned char>(text[i]), i, i + 1);
    }
    if (add_special) push(kEnd, 0, 0);
    if (detail != nullptr) FillChars(text, *detail);
  }

  // A byte inside a character counts as that character.
  static void FillChars(std::string_view text, Encoding& detail) {
    std::vector<uint32_t> chars;
    uint32_t count = 0;
    for (char byte : text) {
      if (!IsContinuation(byte)) ++count;
      chars.push_back(std::max(count, 1u) - 1);
    }
    for (const Span& span : detail.bytes) {
      detail.chars.push_back(span.begin < span.end ? Span{chars[span.begin], chars[span.end - 1] + 1} : Span{});
    }
  }

  AddedTokens added_;
};

// A stream shows whole characters only.
class ByteDecode : public DecodeState {
 public:
  ByteDecode(const ByteTokenizer& tokenizer, const DecodeOptions& options) : tokenizer_(tokenizer), options_(options) {}
  void Push(int32_t id, std::string& out) override {
    tokenizer_.Append(id, options_, pending_);
    const size_t complete = CompletePrefix(pending_);
    out += ReplaceInvalidUtf8(std::string_view(pending_).substr(0, complete));
    pending_.erase(0, complete);
  }
  void Finish(std::string& out) override {
    out += ReplaceInvalidUtf8(pending_);
    pending_.clear();
  }

 private:
  const ByteTokenizer& tokenizer_;
  DecodeOptions options_;
  std::string pending_;
};

std::unique_ptr<DecodeState> ByteTokenizer::StartDecode(const DecodeOptions& options) const {
  return std::make_unique<ByteDecode>(*this, options);
}

}  // namespace

std::unique_ptr<Tokenizer> MakeByteTokenizer() { return std::make_unique<ByteTokenizer>(); }

}  // namespace octavo::text
