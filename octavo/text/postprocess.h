// What happens after the model: special tokens around the sequence (BOS, EOS, CLS, …) and the trimming of offsets that
// byte-level tokenizers ask for. The post-processors of tokenizer.json reduced to a list of steps. Single sequences
// only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/text/aligned_text.h"
#include "octavo/text/tokenizer_json.h"

namespace octavo::text {

// The tokens of a text. `tokens` and `chars` are filled only when offsets are asked for.
struct RawEncoding {
  std::vector<int32_t> ids;
  std::vector<std::string> tokens;
  std::vector<Span> chars;  // characters of the text
};

class PostProcessor {
 public:
  PostProcessor() = default;
  // From the "post_processor" object of tokenizer.json. Throws a file Error that names an unknown type.
  PostProcessor(const JsonValue& json, std::string_view where);
  // Tokens in front and behind, for formats that say no more.
  PostProcessor(std::vector<std::pair<int32_t, std::string>> before,
                std::vector<std::pair<int32_t, std::string>> after);

  void Apply(RawEncoding& encoding, bool add_special, bool with_offsets) const;

  // All ids that it may add.
  std::vector<int32_t> Ids() const;

 private:
  struct Piece {
    bool sequence = false;  // the text itself
    std::vector<int32_t> ids;
    std::vector<std::string> tokens;
  };
  struct Step {
    bool trim = false;
    bool trim_keeps_prefix_space = false;
    std::vector<Piece> pieces;  // empty: no template
  };
  void Read(const JsonValue& json, std::string_view where);
  void ReadTemplate(const JsonValue& json, std::string_view where);
  void ReadPair(const JsonValue& json, std::string_view where);

  std::vector<Step> steps_;
};

}  // namespace octavo::text
