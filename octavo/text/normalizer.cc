#include "octavo/text/normalizer.h"

#include <utf8proc.h>

#include <optional>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/text/normalizer_charsmap.h"
#include "octavo/text/tokenizer_base64.h"
#include "octavo/text/tokenizer_bytechars.h"
#include "octavo/text/unicode.h"

namespace octavo::text {
namespace {

constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";  // U+2581

// What a file puts into every text is short.
std::string ReadContent(const JsonValue& json, std::string_view key, std::string_view where) {
  constexpr size_t kMaxContent = 1024;
  const std::string& content = json.At(key, where).String(fmt::format("{}.{}", where, key));
  if (content.size() > kMaxContent) {
    ThrowFile("{}.{}: {} bytes, at most {} are accepted", where, key, content.size(), kMaxContent);
  }
  return content;
}

class Sequence : public Normalizer {
 public:
  explicit Sequence(std::vector<std::unique_ptr<Normalizer>> parts) : parts_(std::move(parts)) {}
  void Apply(AlignedText& text, RegexScratch& scratch) const override {
    for (const auto& part : parts_) part->Apply(text, scratch);
  }
  bool Keeps(std::string_view text) const override {
    for (const auto& part : parts_) {
      if (!part->Keeps(text)) return false;
    }
    return true;
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> parts_;
};

class UnicodeForm : public Normalizer {
 public:
  explicit UnicodeForm(NormalForm form) : form_(form) {}
  void Apply(AlignedText& text, RegexScratch&) const override {
    if (Keeps(text.text())) return;
    if (form_ == NormalForm::kNfc && !text.tracked()) {
      text.SetUntracked(NfcText(text.text()));
      return;
    }
    std::vector<CharChange> changes;
    Normalize(text.text(), form_, changes);
    text.Transform(changes, 0);
  }
  bool Keeps(std::string_view text) const override {
    if (form_ == NormalForm::kNfc) return IsNfcForSure(text);
    for (char c : text) {
      if (static_cast<unsigned char>(c) >= 0x80) return false;
    }
    return true;  // ASCII is in every form
  }

 private:
  NormalForm form_;
};

void LowerCaseText(AlignedText& text) {
  std::vector<CharChange> changes;
  changes.reserve(text.text().size());
  bool any = false;
  ForEachChar(text.text(), [&](char32_t c) {
    char32_t out[2];
    const int count = LowerCase(c, out);
    any = any || count > 1 || out[0] != c;
    for (int i = 0; i < count; ++i) changes.push_back({out[i], i == 0 ? 0 : 1});
  });
  if (any) text.Transform(changes, 0);
}

class Lowercase : public Normalizer {
 public:
  void Apply(AlignedText& text, RegexScratch&) const override { LowerCaseText(text); }
};

class Strip : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  void Apply(AlignedText& text, RegexScratch&) const override {
    std::vector<CharChange> changes;
    ForEachChar(text.text(), [&](char32_t c) { changes.push_back({c, 0}); });
    size_t begin = 0;
    size_t end = changes.size();
    while (left_ && begin < end && IsSpace(changes[begin].c)) ++begin;
    while (right_ && begin < end && IsSpace(changes[end - 1].c)) --end;
    if (begin == 0 && end == changes.size()) return;
    text.Transform(std::span(changes).subspan(begin, end - begin), begin);
  }

 private:
  bool left_, right_;
};

class StripAccents : public Normalizer {
 public:
  void Apply(AlignedText& text, RegexScratch&) const override {
    text.Filter([](char32_t c) { return (ClassOf(c) & kMark) == 0; });
  }
};

// The clean-up of Marian's and other NMT models: control characters vanish, odd spaces become plain ones.
class Nmt : public Normalizer {
 public:
  void Apply(AlignedText& text, RegexScratch&) const override {
    text.Filter([](char32_t c) {
      return !((c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F || c == 0x8F ||
               c == 0x9F);
    });
    text.Map1([](char32_t c) {
      const bool space = c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 ||
                         (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF ||
                         c == 0xFFFD;
      return space ? U' ' : c;
    });
  }
};

bool IsChinese(char32_t c) {
  // The blocks of BERT's original code, one off by 0x100 as in the reference library.
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

class Bert : public Normalizer {
 public:
  Bert(const JsonValue& json, std::string_view where)
      : clean_text_(json.BoolOr("clean_text", true, where)),
        chinese_(json.BoolOr("handle_chinese_chars", true, where)),
        lowercase_(json.BoolOr("lowercase", true, where)),
        strip_accents_(json.BoolOr("strip_accents", lowercase_, where)) {}

  void Apply(AlignedText& text, RegexScratch&) const override {
    if (clean_text_) {
      text.Filter([](char32_t c) {
        if (c == '\t' || c == '\n' || c == '\r') return true;
        return c != 0 && c != 0xFFFD && (ClassOf(c) & kControl) == 0;
      });
      text.Map1([](char32_t c) { return IsSpace(c) ? U' ' : c; });
    }
    std::vector<CharChange> changes;
    if (chinese_) {
      bool any = false;
      ForEachChar(text.text(), [&](char32_t c) {
        if (IsChinese(c)) {
          changes.insert(changes.end(), {{U' ', 0}, {c, 1}, {U' ', 1}});
          any = true;
        } else {
          changes.push_back({c, 0});
        }
      });
      if (any) text.Transform(changes, 0);
      changes.clear();
    }
    if (strip_accents_) {
      Normalize(text.text(), NormalForm::kNfd, changes);
      text.Transform(changes, 0);
      text.Filter([](char32_t c) { return (ClassOf(c) & kNonspacing) == 0; });
    }
    if (lowercase_) LowerCaseText(text);
  }

 private:
  bool clean_text_, chinese_, lowercase_, strip_accents_;
};

class Replace : public Normalizer {
 public:
  Replace(const JsonValue& json, std::string_view where)
      : pattern_(json.At("pattern", where), fmt::format("{}.pattern", where)),
        content_(ReadContent(json, "content", where)) {}

  void Apply(AlignedText& text, RegexScratch& scratch) const override {
    std::vector<Span> matches;
    pattern_.FindAll(text.text(), scratch, [&](size_t begin, size_t end) {
      matches.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(end)});
    });
    text.Replace(matches, content_);
  }
  bool Keeps(std::string_view text) const override {
    return pattern_.is_literal() && text.find(pattern_.source()) == std::string_view::npos;
  }

 private:
  TextPattern pattern_;
  std::string content_;
};

class Prepend : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  void Apply(AlignedText& text, RegexScratch&) const override { text.Prepend(prefix_); }
  bool Keeps(std::string_view text) const override { return text.empty() || prefix_.empty(); }

 private:
  std::string prefix_;
};

class SpacesToSymbol : public Normalizer {
 public:
  void Apply(AlignedText& text, RegexScratch&) const override {
    std::vector<Span> matches;
    for (size_t at = text.text().find(' '); at != std::string::npos; at = text.text().find(' ', at + 1)) {
      matches.push_back({static_cast<uint32_t>(at), static_cast<uint32_t>(at + 1)});
    }
    text.Replace(matches, kSpaceSymbol);
  }
  bool Keeps(std::string_view text) const override { return text.find(' ') == std::string_view::npos; }
};

class ByteChars : public Normalizer {
 public:
  void Apply(AlignedText& text, RegexScratch&) const override { MapToByteChars(text); }
};

// SentencePiece's character map. A grapheme of at most five bytes is looked up whole, then each of its characters.
class Precompiled : public Normalizer {
 public:
  explicit Precompiled(std::string_view blob, std::string_view where) : map_(blob, where) {}

  void Apply(AlignedText& text, RegexScratch&) const override {
    std::vector<CharChange> changes;
    bool modified = false;
    size_t begin = 0;
    while (begin < text.text().size()) {
      const size_t end = GraphemeEnd(text.text(), begin);
      const std::string_view grapheme = std::string_view(text.text()).substr(begin, end - begin);
      begin = end;
      if (grapheme.size() < 6 && Rewrite(grapheme, changes)) {
        modified = true;
        continue;
      }
      for (size_t at = 0; at < grapheme.size();) {
        const auto length = static_cast<size_t>(LeadLength(static_cast<unsigned char>(grapheme[at])));
        const std::string_view one = grapheme.substr(at, length);
        at += length;
        if (Rewrite(one, changes)) {
          modified = true;
        } else {
          const char* p = one.data();
          changes.push_back({NextChar(p), 0});
        }
      }
    }
    if (modified) text.Transform(changes, 0);
  }

 private:
  static size_t GraphemeEnd(const std::string& text, size_t begin) {
    const char* at = text.data() + begin;
    const char* const end = text.data() + text.size();
    char32_t previous = NextChar(at);
    utf8proc_int32_t state = 0;
    while (at < end) {
      const char* here = at;
      const char32_t next = NextChar(at);
      if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(previous), static_cast<utf8proc_int32_t>(next),
                                           &state)) {
        return static_cast<size_t>(here - text.data());
      }
      previous = next;
    }
    return text.size();
  }

  bool Rewrite(std::string_view old_part, std::vector<CharChange>& changes) const {
    const std::optional<std::string_view> found = map_.ShortestPrefix(old_part);
    if (!found) return false;
    const auto old_count = static_cast<ptrdiff_t>(CountChars(old_part));
    ptrdiff_t new_count = 0;
    ForEachChar(*found, [&](char32_t c) {
      changes.push_back({c, new_count < old_count ? 0 : 1});
      ++new_count;
    });
    // Characters that vanish are charged to the one before them; at the very front there is none.
    if (new_count < old_count && !changes.empty()) changes.back().change -= static_cast<int>(old_count - new_count);
    return true;
  }

  Charsmap map_;
};

std::unique_ptr<Normalizer> MakeSequence(const JsonValue& json, std::string_view where) {
  std::vector<std::unique_ptr<Normalizer>> parts;
  size_t index = 0;
  for (const JsonValue& part : json.At("normalizers", where).Items(where)) {
    parts.push_back(MakeNormalizer(part, fmt::format("{}.normalizers[{}]", where, index++)));
  }
  return std::make_unique<Sequence>(std::move(parts));
}

std::unique_ptr<Normalizer> MakePrecompiled(const JsonValue& json, std::string_view where) {
  const JsonValue* blob = json.Find("precompiled_charsmap");
  if (blob == nullptr || blob->String(where).empty()) return std::make_unique<Prepend>("");
  const std::optional<std::string> bytes = DecodeBase64(blob->String(where));
  if (!bytes) ThrowFile("{}: precompiled_charsmap is not base64", where);
  return std::make_unique<Precompiled>(*bytes, where);
}

}  // namespace

bool Normalizer::Keeps(std::string_view) const { return false; }

std::unique_ptr<Normalizer> MakeNormalizer(const JsonValue& json, std::string_view where) {
  const std::string& type = json.At("type", where).String(where);
  if (type == "Sequence") return MakeSequence(json, where);
  if (type == "NFC") return std::make_unique<UnicodeForm>(NormalForm::kNfc);
  if (type == "NFD") return std::make_unique<UnicodeForm>(NormalForm::kNfd);
  if (type == "NFKC") return std::make_unique<UnicodeForm>(NormalForm::kNfkc);
  if (type == "NFKD") return std::make_unique<UnicodeForm>(NormalForm::kNfkd);
  if (type == "Lowercase") return std::make_unique<Lowercase>();
  if (type == "Strip") {
    return std::make_unique<Strip>(json.BoolOr("strip_left", true, where), json.BoolOr("strip_right", true, where));
  }
  if (type == "StripAccents") return std::make_unique<StripAccents>();
  if (type == "Nmt") return std::make_unique<Nmt>();
  if (type == "BertNormalizer" || type == "Bert") return std::make_unique<Bert>(json, where);
  if (type == "Replace") return std::make_unique<Replace>(json, where);
  if (type == "Prepend") return std::make_unique<Prepend>(ReadContent(json, "prepend", where));
  if (type == "Precompiled") return MakePrecompiled(json, where);
  if (type == "ByteLevel") return std::make_unique<ByteChars>();
  throw Error(ErrorCode::kFile, fmt::format("{}: normalizer '{}' is not supported", where, type.substr(0, 60)),
              "known: Sequence NFC NFD NFKC NFKD Lowercase Strip StripAccents Nmt BertNormalizer Replace Prepend "
              "Precompiled ByteLevel");
}

std::unique_ptr<Normalizer> MakePrependAndReplace(bool prepend_space) {
  std::vector<std::unique_ptr<Normalizer>> parts;
  if (prepend_space) parts.push_back(std::make_unique<Prepend>(std::string(kSpaceSymbol)));
  parts.push_back(std::make_unique<SpacesToSymbol>());
  return std::make_unique<Sequence>(std::move(parts));
}

std::unique_ptr<Normalizer> MakeCharsmapNormalizer(std::string charsmap) {
  return std::make_unique<Precompiled>(charsmap, "precompiled_charsmap");
}

TextPattern::TextPattern(const JsonValue& json, std::string_view where) {
  if (const JsonValue* literal = json.Find("String")) {
    source_ = literal->String(where);
    if (source_.empty()) regex_ = std::make_unique<Regex>("");
    return;
  }
  source_ = json.At("Regex", where).String(where);
  regex_ = std::make_unique<Regex>(source_);
}

void TextPattern::FindAll(std::string_view text, RegexScratch& scratch, FunctionRef<void(size_t, size_t)> visit) const {
  if (regex_ != nullptr) {
    regex_->FindAll(text, scratch, visit);
    return;
  }
  for (size_t at = text.find(source_); at != std::string_view::npos; at = text.find(source_, at + source_.size())) {
    visit(at, at + source_.size());
  }
}

}  // namespace octavo::text
