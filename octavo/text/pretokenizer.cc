#include "octavo/text/pretokenizer.h"

#include <algorithm>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/text/normalizer.h"
#include "octavo/text/pretokenizer_split.h"
#include "octavo/text/tokenizer_bytechars.h"
#include "octavo/text/unicode.h"

namespace octavo::text {
namespace {

class Sequence : public PreTokenizer {
 public:
  explicit Sequence(std::vector<std::unique_ptr<PreTokenizer>> parts) : parts_(std::move(parts)) {}
  void Apply(std::vector<Piece>& pieces, RegexScratch& scratch) const override {
    for (const auto& part : parts_) part->Apply(pieces, scratch);
  }
  bool Describe(ByteLevelCuts& cuts) const override {
    for (const auto& part : parts_) {
      if (cuts.ends_in_bytes || !part->Describe(cuts)) return false;
    }
    return true;
  }
  bool NeedsOrigin() const override {
    return std::any_of(parts_.begin(), parts_.end(), [](const auto& part) { return part->NeedsOrigin(); });
  }

 private:
  std::vector<std::unique_ptr<PreTokenizer>> parts_;
};

// Matches of a regular expression, found by the scanner of its pattern where there is one.
class PatternFinder {
 public:
  explicit PatternFinder(std::string_view pattern) : regex_(pattern), scanner_(FindWordScanner(pattern)) {}

  void Find(std::string_view text, RegexScratch& scratch, std::vector<Cut>& cuts) const {
    if (scanner_ == nullptr) {
      CutsFromMatches(text, cuts, [&](auto visit) { regex_.FindAll(text, scratch, visit); });
      return;
    }
    const CharClasses& classes = CharClasses::Table();
    const char* at = text.data();
    const char* const end = at + text.size();
    while (at < end) {
      const char* next = scanner_(classes, at, end);
      cuts.push_back({static_cast<size_t>(at - text.data()), static_cast<size_t>(next - text.data()), true});
      at = next;
    }
  }

  WordCut cut() const { return {scanner_, &regex_}; }

 private:
  Regex regex_;
  WordScanner scanner_;
};

class ByteLevel : public PreTokenizer {
 public:
  ByteLevel(bool add_prefix_space, bool use_regex) : add_prefix_space_(add_prefix_space) {
    if (use_regex) finder_ = std::make_unique<PatternFinder>(kGpt2Pattern);
  }

  void Apply(std::vector<Piece>& pieces, RegexScratch& scratch) const override {
    SplitPieces(pieces, [&](Piece&& piece, std::vector<Piece>& out) {
      if (add_prefix_space_ && !piece.text.text().starts_with(' ')) piece.text.Prepend(" ");
      if (finder_ == nullptr) {
        out.push_back(std::move(piece));
        return;
      }
      std::vector<Cut> cuts;
      finder_->Find(piece.text.text(), scratch, cuts);
      PushCuts(piece.text, cuts, SplitBehavior::kIsolated, out);
    });
    for (Piece& piece : pieces) {
      if (piece.added_id < 0) MapToByteChars(piece.text);
    }
  }

  bool Describe(ByteLevelCuts& cuts) const override {
    // A space put in front after an earlier cut goes in front of every word: that is another thing.
    if (add_prefix_space_ && !cuts.cuts.empty()) return false;
    cuts.add_prefix_space = add_prefix_space_;
    if (finder_ != nullptr) cuts.cuts.push_back(finder_->cut());
    cuts.ends_in_bytes = true;
    return true;
  }

 private:
  bool add_prefix_space_;
  std::unique_ptr<PatternFinder> finder_;
};

class Split : public PreTokenizer {
 public:
  Split(const JsonValue& json, std::string_view where)
      : behavior_(ReadBehavior(json.StringOr("behavior", "Isolated", where), where)),
        invert_(json.BoolOr("invert", false, where)) {
    const JsonValue& pattern = json.At("pattern", where);
    if (const JsonValue* regex = pattern.Find("Regex")) {
      finder_ = std::make_unique<PatternFinder>(regex->String(where));
    } else {
      literal_ = std::make_unique<TextPattern>(pattern, where);
    }
  }
  explicit Split(std::string_view pattern)
      : behavior_(SplitBehavior::kIsolated), finder_(std::make_unique<PatternFinder>(pattern)) {}

  void Apply(std::vector<Piece>& pieces, RegexScratch& scratch) const override {
    std::vector<Cut> cuts;
    SplitPieces(pieces, [&](Piece&& piece, std::vector<Piece>& out) {
      cuts.clear();
      const std::string& text = piece.text.text();
      if (finder_ != nullptr) {
        finder_->Find(text, scratch, cuts);
      } else {
        CutsFromMatches(text, cuts, [&](auto visit) { literal_->FindAll(text, scratch, visit); });
      }
      if (invert_) {
        for (Cut& cut : cuts) cut.match = !cut.match;
      }
      PushCuts(piece.text, cuts, behavior_, out);
    });
  }

  bool Describe(ByteLevelCuts& cuts) const override {
    if (behavior_ != SplitBehavior::kIsolated || invert_ || finder_ == nullptr) return false;
    cuts.cuts.push_back(finder_->cut());
    return true;
  }

 private:
  SplitBehavior behavior_;
  bool invert_ = false;
  std::unique_ptr<PatternFinder> finder_;
  std::unique_ptr<TextPattern> literal_;
};

enum class PrependScheme { kAlways, kFirst, kNever };

class Metaspace : public PreTokenizer {
 public:
  Metaspace(const JsonValue& json, std::string_view where) {
    replacement_ = json.StringOr("replacement", "\xE2\x96\x81", where);
    if (CountChars(replacement_) != 1) ThrowFile("{}.replacement: expected one character", where);
    const std::string scheme = json.StringOr("prepend_scheme", "always", where);
    if (scheme == "always") {
      scheme_ = PrependScheme::kAlways;
    } else if (scheme == "first") {
      scheme_ = PrependScheme::kFirst;
    } else if (scheme == "never") {
      scheme_ = PrependScheme::kNever;
    } else {
      ThrowFile("{}.prepend_scheme: expected always, first or never", where);
    }
    // Older files say it with a switch.
    if (!json.BoolOr("add_prefix_space", true, where)) {
      if (json.Find("prepend_scheme") != nullptr && scheme_ != PrependScheme::kNever) {
        ThrowFile("{}: add_prefix_space does not match prepend_scheme", where);
      }
      scheme_ = PrependScheme::kNever;
    }
    split_ = json.BoolOr("split", true, where);
  }

  void Apply(std::vector<Piece>& pieces, RegexScratch&) const override {
    std::vector<Span> spaces;
    std::vector<Cut> cuts;
    SplitPieces(pieces, [&](Piece&& piece, std::vector<Piece>& out) {
      spaces.clear();
      const std::string& before = piece.text.text();
      for (size_t at = before.find(' '); at != std::string::npos; at = before.find(' ', at + 1)) {
        spaces.push_back({static_cast<uint32_t>(at), static_cast<uint32_t>(at + 1)});
      }
      piece.text.Replace(spaces, replacement_);
      const bool wanted =
          scheme_ == PrependScheme::kAlways || (scheme_ == PrependScheme::kFirst && piece.text.original_begin() == 0);
      if (wanted && !piece.text.text().starts_with(replacement_)) piece.text.Prepend(replacement_);
      if (!split_) {
        out.push_back(std::move(piece));
        return;
      }
      cuts.clear();
      const std::string& text = piece.text.text();
      CutsFromMatches(text, cuts, [&](auto visit) {
        for (size_t at = text.find(replacement_); at != std::string::npos; at = text.find(replacement_, at + 1)) {
          visit(at, at + replacement_.size());
        }
      });
      PushCuts(piece.text, cuts, SplitBehavior::kMergedWithNext, out);
    });
  }
  bool NeedsOrigin() const override { return scheme_ == PrependScheme::kFirst; }

 private:
  std::string replacement_;
  PrependScheme scheme_ = PrependScheme::kAlways;
  bool split_ = true;
};

// Cuts by a property of single characters.
class CharSplit : public PreTokenizer {
 public:
  CharSplit(bool (*matches)(char32_t), SplitBehavior behavior) : matches_(matches), behavior_(behavior) {}
  void Apply(std::vector<Piece>& pieces, RegexScratch&) const override {
    std::vector<Cut> cuts;
    SplitPieces(pieces, [&](Piece&& piece, std::vector<Piece>& out) {
      cuts.clear();
      CutsFromChars(piece.text.text(), matches_, cuts);
      PushCuts(piece.text, cuts, behavior_, out);
    });
  }

 private:
  bool (*matches_)(char32_t);
  SplitBehavior behavior_;
};

bool IsPunctuationChar(char32_t c) {
  const bool ascii =
      (c >= 0x21 && c <= 0x2F) || (c >= 0x3A && c <= 0x40) || (c >= 0x5B && c <= 0x60) || (c >= 0x7B && c <= 0x7E);
  return ascii || (ClassOf(c) & kPunctuation) != 0;
}

bool IsNumeric(char32_t c) { return (ClassOf(c) & kNumber) != 0; }
bool IsSpaceChar(char32_t c) { return IsSpace(c); }

// White space vanishes, each punctuation mark stands alone.
class Bert : public PreTokenizer {
 public:
  void Apply(std::vector<Piece>& pieces, RegexScratch&) const override {
    SplitPieces(pieces, [&](Piece&& piece, std::vector<Piece>& out) {
      const std::string& text = piece.text.text();
      const char* at = text.data();
      const char* const end = at + text.size();
      const char* word = at;
      const auto push = [&](const char* begin, const char* stop) {
        if (begin < stop) {
          out.push_back(
              {piece.text.Slice(static_cast<size_t>(begin - text.data()), static_cast<size_t>(stop - text.data()))});
        }
      };
      while (at < end) {
        const char* here = at;
        const char32_t c = NextChar(at);
        const bool space = IsSpace(c);
        if (!space && !IsPunctuationChar(c)) continue;
        push(word, here);
        if (!space) push(here, at);
        word = at;
      }
      push(word, end);
    });
  }
};

// \w+|[^\w\s]+, white space vanishes.
class Whitespace : public PreTokenizer {
 public:
  void Apply(std::vector<Piece>& pieces, RegexScratch&) const override {
    SplitPieces(pieces, [&](Piece&& piece, std::vector<Piece>& out) {
      const std::string& text = piece.text.text();
      const auto kind = [](char32_t c) { return IsSpace(c) ? 0 : IsWordChar(c) ? 1 : 2; };
      const char* at = text.data();
      const char* const end = at + text.size();
      while (at < end) {
        const char* begin = at;
        const int first = kind(NextChar(at));
        while (at < end) {
          const char* next = at;
          if (kind(NextChar(next)) != first) break;
          at = next;
        }
        if (first == 0) continue;
        out.push_back(
            {piece.text.Slice(static_cast<size_t>(begin - text.data()), static_cast<size_t>(at - text.data()))});
      }
    });
  }
};

class CharDelimiter : public PreTokenizer {
 public:
  explicit CharDelimiter(std::string delimiter) : delimiter_(std::move(delimiter)) {}
  void Apply(std::vector<Piece>& pieces, RegexScratch&) const override {
    std::vector<Cut> cuts;
    SplitPieces(pieces, [&](Piece&& piece, std::vector<Piece>& out) {
      cuts.clear();
      const std::string& text = piece.text.text();
      CutsFromMatches(text, cuts, [&](auto visit) {
        for (size_t at = text.find(delimiter_); at != std::string::npos;
             at = text.find(delimiter_, at + delimiter_.size())) {
          visit(at, at + delimiter_.size());
        }
      });
      PushCuts(piece.text, cuts, SplitBehavior::kRemoved, out);
    });
  }

 private:
  std::string delimiter_;
};

class FixedLength : public PreTokenizer {
 public:
  explicit FixedLength(int64_t length) : length_(length) {}
  void Apply(std::vector<Piece>& pieces, RegexScratch&) const override {
    SplitPieces(pieces, [&](Piece&& piece, std::vector<Piece>& out) {
      const std::string& text = piece.text.text();
      for (size_t begin = 0; begin < text.size();) {
        size_t end = begin;
        for (int64_t count = 0; count < length_ && end < text.size(); ++count) {
          end += static_cast<size_t>(LeadLength(static_cast<unsigned char>(text[end])));
        }
        out.push_back({piece.text.Slice(begin, end)});
        begin = end;
      }
    });
  }

 private:
  int64_t length_;
};

std::unique_ptr<PreTokenizer> MakeSequence(const JsonValue& json, std::string_view where) {
  std::vector<std::unique_ptr<PreTokenizer>> parts;
  size_t index = 0;
  for (const JsonValue& part : json.At("pretokenizers", where).Items(where)) {
    parts.push_back(MakePreTokenizer(part, fmt::format("{}.pretokenizers[{}]", where, index++)));
  }
  return std::make_unique<Sequence>(std::move(parts));
}

}  // namespace

bool PreTokenizer::Describe(ByteLevelCuts&) const { return false; }

std::unique_ptr<PreTokenizer> MakePreTokenizer(const JsonValue& json, std::string_view where) {
  const std::string& type = json.At("type", where).String(where);
  if (type == "Sequence") return MakeSequence(json, where);
  if (type == "ByteLevel") {
    return std::make_unique<ByteLevel>(json.BoolOr("add_prefix_space", true, where),
                                       json.BoolOr("use_regex", true, where));
  }
  if (type == "Split") return std::make_unique<Split>(json, where);
  if (type == "Metaspace") return std::make_unique<Metaspace>(json, where);
  if (type == "Whitespace") return std::make_unique<Whitespace>();
  if (type == "WhitespaceSplit") return std::make_unique<CharSplit>(&IsSpaceChar, SplitBehavior::kRemoved);
  if (type == "BertPreTokenizer") return std::make_unique<Bert>();
  if (type == "Punctuation") {
    return std::make_unique<CharSplit>(&IsPunctuationChar,
                                       ReadBehavior(json.StringOr("behavior", "Isolated", where), where));
  }
  if (type == "Digits") {
    const bool individual = json.BoolOr("individual_digits", false, where);
    return std::make_unique<CharSplit>(&IsNumeric, individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous);
  }
  if (type == "CharDelimiterSplit" || type == "Delimiter") {
    const std::string& delimiter = json.At("delimiter", where).String(where);
    if (CountChars(delimiter) != 1) ThrowFile("{}.delimiter: expected one character", where);
    return std::make_unique<CharDelimiter>(delimiter);
  }
  if (type == "FixedLength") {
    const JsonValue* length = json.Find("length");
    return std::make_unique<FixedLength>(length == nullptr ? 5 : length->Int(where, 1, 1 << 20));
  }
  throw Error(
      ErrorCode::kFile, fmt::format("{}: pre-tokenizer '{}' is not supported", where, type.substr(0, 60)),
      "known: Sequence ByteLevel Split Metaspace Whitespace WhitespaceSplit BertPreTokenizer Punctuation Digits "
      "CharDelimiterSplit FixedLength");
}

std::unique_ptr<PreTokenizer> MakeByteLevelSplit(const std::vector<std::string>& patterns, bool to_bytes) {
  std::vector<std::unique_ptr<PreTokenizer>> parts;
  for (const std::string& pattern : patterns) parts.push_back(std::make_unique<Split>(pattern));
  if (to_bytes) parts.push_back(std::make_unique<ByteLevel>(false, false));
  return std::make_unique<Sequence>(std::move(parts));
}

}  // namespace octavo::text
