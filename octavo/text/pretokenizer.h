// How text is cut into words before the model sees it: the pre-tokenizers of tokenizer.json, each with its own pattern
// and behaviour. Used by the tokenizer pipeline.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/text/aligned_text.h"
#include "octavo/text/pretokenizer_scan.h"
#include "octavo/text/regex.h"
#include "octavo/text/tokenizer_json.h"

namespace octavo::text {

// A piece of the text on its way to the model; one that is an added token already has its id.
struct Piece {
  AlignedText text;
  int32_t added_id = -1;
};

// One cut that keeps everything: matches and what lies between them become words of their own.
struct WordCut {
  WordScanner scanner = nullptr;  // a known pattern
  const Regex* regex = nullptr;   // any other
};

// The pre-tokenizers of a byte-level model reduced to what they do: cuts in order, then bytes.
struct ByteLevelCuts {
  std::vector<WordCut> cuts;
  bool add_prefix_space = false;
  bool ends_in_bytes = false;
};

// Immutable; any number of threads may use one.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  // Cuts and rewrites the pieces that are not added tokens; empty ones vanish.
  virtual void Apply(std::vector<Piece>& pieces, RegexScratch& scratch) const = 0;
  // Adds what this does to `cuts`; false when it does anything else.
  virtual bool Describe(ByteLevelCuts& cuts) const;
  // True when the result depends on where in the original a piece starts.
  virtual bool NeedsOrigin() const { return false; }
};

// From the "pre_tokenizer" object of tokenizer.json. Throws a file Error that names an unknown type.
std::unique_ptr<PreTokenizer> MakePreTokenizer(const JsonValue& json, std::string_view where);

// Patterns that isolate words one after the other, then the byte-level alphabet: what tiktoken and GGUF files mean.
std::unique_ptr<PreTokenizer> MakeByteLevelSplit(const std::vector<std::string>& patterns, bool to_bytes);

}  // namespace octavo::text
