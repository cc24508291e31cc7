#include "octavo/text/decoder.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/text/decoder_stages.h"
#include "octavo/text/normalizer.h"
#include "octavo/text/tokenizer_bytechars.h"
#include "octavo/text/unicode.h"

namespace octavo::text {

// What one decoder of the file says; `make` builds its stage for a run.
struct Decoder::Part {
  std::function<std::unique_ptr<DecodeStage>(DecodeMode mode, bool fused)> make;
  bool fuses = false;       // what comes after sees one long token
  bool byte_level = false;  // is the ByteLevel decoder
};

Decoder::Decoder(Decoder&&) noexcept = default;
Decoder& Decoder::operator=(Decoder&&) noexcept = default;
Decoder::~Decoder() = default;

Decoder::Decoder() {
  parts_.push_back(std::make_unique<Part>(Part{[](DecodeMode, bool) { return MakeJoinBySpaces(); }}));
}

Decoder::Decoder(const JsonValue& json, std::string_view where) { Read(json, where, 0); }

Decoder Decoder::ByteLevel() {
  Decoder decoder;
  decoder.parts_.clear();
  decoder.parts_.push_back(
      std::make_unique<Part>(Part{[](DecodeMode, bool) { return MakeByteLevelStage(); }, true, true}));
  return decoder;
}

Decoder Decoder::Metaspace(bool strip_first_space) {
  Decoder decoder;
  decoder.parts_.clear();
  const auto add = [&](Part part) { decoder.parts_.push_back(std::make_unique<Part>(std::move(part))); };
  add({[](DecodeMode, bool) { return MakeReplaceLiteral("\xE2\x96\x81", " "); }});
  add({[](DecodeMode mode, bool) { return MakeByteFallback(mode); }});
  add({[](DecodeMode, bool) { return MakeFuse(); }, true});
  if (strip_first_space) add({[](DecodeMode, bool) { return MakeStripFused(U' ', 1, 0); }});
  return decoder;
}

void Decoder::Read(const JsonValue& json, std::string_view where, int depth) {
  if (depth > 16) ThrowFile("{}: decoders nested too deep", where);
  const std::string& type = json.At("type", where).String(where);
  const auto add = [&](Part part) { parts_.push_back(std::make_unique<Part>(std::move(part))); };
  // A stage that wants whole tokens waits for the end when the tokens before it have been fused.
  const auto whole = [](std::function<std::unique_ptr<DecodeStage>()> make) {
    return [make = std::move(make)](DecodeMode, bool fused) { return fused ? MakeHold(make()) : make(); };
  };
  if (type == "Sequence") {
    size_t index = 0;
    for (const JsonValue& part : json.At("decoders", where).Items(where)) {
      Read(part, fmt::format("{}.decoders[{}]", where, index++), depth + 1);
    }
  } else if (type == "ByteLevel") {
    add({[](DecodeMode, bool) { return MakeByteLevelStage(); }, true, true});
  } else if (type == "ByteFallback") {
    add({[](DecodeMode mode, bool fused) {
      return fused ? MakeHold(MakeByteFallback(mode)) : MakeByteFallback(mode);
    }});
  } else if (type == "Fuse") {
    add({[](DecodeMode, bool) { return MakeFuse(); }, true});
  } else if (type == "Strip") {
    const std::string& content = json.At("content", where).String(where);
    if (CountChars(content) != 1) ThrowFile("{}.content: expected one character", where);
    const char* p = content.data();
    const char32_t c = NextChar(p);
    const auto start = static_cast<size_t>(json.At("start", where).Int(where, 0, 1 << 20));
    const auto stop = static_cast<size_t>(json.At("stop", where).Int(where, 0, 1 << 20));
    add({[=](DecodeMode, bool fused) { return fused ? MakeStripFused(c, start, stop) : MakeStrip(c, start, stop); }});
  } else if (type == "Replace") {
    const std::string content = json.At("content", where).String(where);
    if (content.size() > 1024) ThrowFile("{}.content: {} bytes, at most 1024 are accepted", where, content.size());
    auto pattern = std::make_shared<TextPattern>(json.At("pattern", where), fmt::format("{}.pattern", where));
    add({[=](DecodeMode, bool fused) {
      auto stage =
          pattern->is_literal() ? MakeReplaceLiteral(pattern->source(), content) : MakeReplace(pattern, content);
      const bool one_byte_at_a_time = pattern->is_literal() && CountChars(pattern->source()) == 1;
      return fused && !one_byte_at_a_time ? MakeHold(std::move(stage)) : std::move(stage);
    }});
  } else if (type == "Metaspace") {
    const std::string replacement = json.StringOr("replacement", "\xE2\x96\x81", where);
    const bool strip =
        json.StringOr("prepend_scheme", json.BoolOr("add_prefix_space", true, where) ? "always" : "never", where) !=
        "never";
    add({[=](DecodeMode, bool fused) { return MakeMetaspace(replacement, strip, fused); }});
  } else if (type == "WordPiece") {
    const std::string prefix = json.StringOr("prefix", "##", where);
    const bool cleanup = json.BoolOr("cleanup", true, where);
    add({whole([=] { return MakeWordPiece(prefix, cleanup); })});
  } else if (type == "BPEDecoder") {
    const std::string suffix = json.StringOr("suffix", "</w>", where);
    add({whole([=] { return MakeBpeSuffix(suffix); })});
  } else if (type == "CTC") {
    const std::string pad = json.StringOr("pad_token", "<pad>", where);
    const std::string delimiter = json.StringOr("word_delimiter_token", "|", where);
    const bool cleanup = json.BoolOr("cleanup", true, where);
    add({whole([=] { return MakeCtc(pad, delimiter, cleanup); })});
  } else {
    throw Error(ErrorCode::kFile, fmt::format("{}: decoder '{}' is not supported", where, type.substr(0, 60)),
                "known: Sequence ByteLevel ByteFallback Fuse Strip Replace Metaspace WordPiece BPEDecoder CTC");
  }
}

DecodeRun Decoder::Start(DecodeMode mode) const {
  std::vector<std::unique_ptr<DecodeStage>> stages;
  bool fused = false;
  for (const auto& part : parts_) {
    stages.push_back(part->make(mode, fused));
    fused = fused || part->fuses;
  }
  return DecodeRun(std::move(stages));
}

std::optional<std::string> Decoder::BytesOf(std::string_view token) const {
  // Asked of the chain itself: what it puts between two tokens that it lets through as they are.
  const auto between = [&](std::string_view middle) -> std::optional<std::string> {
    DecodeRun run = Start(DecodeMode::kStream);
    std::string out;
    run.Push("x", out);
    if (out != "x") return std::nullopt;
    run.Push(middle, out);
    run.Push("y", out);
    if (!out.ends_with('y')) return std::nullopt;
    return out.substr(1, out.size() - 2);
  };
  if (IsByteLevelOnly()) return CharsToBytes(token).value_or(std::string(token));
  if (between("z") != "z") return std::nullopt;
  // A byte on its own is not a character yet: the chain would hold it back.
  if (const int byte = FallbackByte(token); byte >= 0 && between("<0x41>") == "A") {
    return std::string(1, static_cast<char>(byte));
  }
  return between(token);
}

bool Decoder::IsByteLevelOnly() const { return parts_.size() == 1 && parts_[0]->byte_level; }

void DecodeRun::PushFrom(size_t stage, std::string_view token, std::string& out) {
  if (stage == stages_.size()) {
    out.append(token);
    return;
  }
  stages_[stage]->Push(token, [&](std::string_view text) { PushFrom(stage + 1, text, out); });
}

void DecodeRun::Finish(std::string& out) {
  for (size_t stage = 0; stage < stages_.size(); ++stage) {
    stages_[stage]->Finish([&](std::string_view text) { PushFrom(stage + 1, text, out); });
  }
}

}  // namespace octavo::text
