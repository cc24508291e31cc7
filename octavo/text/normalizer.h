// What happens to text before it is cut into words: the normalizers of tokenizer.json (Unicode forms, case, accents,
// replacement, SentencePiece character maps, …). Used by the tokenizer pipeline; AlignedText keeps the offsets.
#pragma once

#include <memory>
#include <string_view>

#include "octavo/text/aligned_text.h"
#include "octavo/text/regex.h"
#include "octavo/text/tokenizer_json.h"

namespace octavo::text {

// Immutable; any number of threads may use one.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void Apply(AlignedText& text, RegexScratch& scratch) const = 0;
  // True when Apply certainly changes nothing. Cheap.
  virtual bool Keeps(std::string_view text) const;
};

// From the "normalizer" object of tokenizer.json. Throws a file Error that names an unknown type.
std::unique_ptr<Normalizer> MakeNormalizer(const JsonValue& json, std::string_view where);

// The normalizers that other formats need without JSON.
std::unique_ptr<Normalizer> MakePrependAndReplace(
    bool prepend_space);  // SentencePiece: U+2581 for spaces, one in front
std::unique_ptr<Normalizer> MakeCharsmapNormalizer(std::string charsmap);  // SentencePiece's precompiled map, raw bytes

// "String" or "Regex" pattern of Replace and Split, compiled. Literal text is found without a regular expression.
class TextPattern {
 public:
  TextPattern(const JsonValue& json, std::string_view where);
  void FindAll(std::string_view text, RegexScratch& scratch, FunctionRef<void(size_t begin, size_t end)> visit) const;
  bool is_literal() const { return regex_ == nullptr; }
  const std::string& source() const { return source_; }

 private:
  std::string source_;
  std::unique_ptr<Regex> regex_;  // null for literal text
};

}  // namespace octavo::text
