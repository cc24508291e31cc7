// Small tokenizers and random texts for the tests of this folder.
#pragma once

#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/text/bpe_trainer.h"
#include "octavo/text/tokenizer.h"
#include "octavo/text/unicode.h"

namespace octavo::text {

inline std::string GoldenPath(std::string_view name) { return OCTAVO_SOURCE_DIR "/tests/golden/" + std::string(name); }

inline std::string ReadTestFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

constexpr std::string_view kTrainingText =
    "the quick brown fox jumps over the lazy dog, and the dog doesn't mind at all.\n"
    "int main() {\n  return 12345 + 678;  // the answer\n}\n\n\n"
    "Größe, naïve café; 日本語のテキスト、日本語。 🚀🚀 the end of the text.\n";

// A byte-level tokenizer with <|endoftext|>, <|im_start|> and <|im_end|>.
inline std::string TrainedJson(const std::string& pattern, int32_t size = 340) {
  BpeTrainerOptions options;
  options.vocabulary_size = size;
  options.pattern = pattern;
  options.special_tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  ThreadPool pool(1);
  const std::string_view texts[] = {kTrainingText, kTrainingText};
  return TokenizerJson(TrainBpe(texts, options, pool));
}

inline std::unique_ptr<Tokenizer> Trained(const std::string& pattern, int32_t size = 340) {
  return ParseTokenizerJson(TrainedJson(pattern, size), "trained");
}

// Texts that tokenizers stumble over: runs, spaces, signs, letters of many scripts, any character at all.
class RandomText {
 public:
  explicit RandomText(uint64_t seed) : engine_(seed) {}

  std::string Next(size_t most_parts = 6) {
    static constexpr std::string_view kParts[] = {"a",         "b",   "the", " ", "  ",     "\n",     "\r\n",  "\t",
                                                  "'s",        "'LL", "12",  "3", ".",      "!?",     "(",     "é",
                                                  "e\xCC\x81", "日",  "本",  "🚀", "\u00A0", "\u3000", "ſ",     "Ω",
                                                  "ß",         "<|",  "|>",  "_", "İ",      "한",     "\u200D"};
    std::string text;
    for (size_t parts = 1 + Below(most_parts); parts > 0; --parts) {
      const size_t repeats = Below(8) == 0 ? 1 + Below(30) : 1 + Below(2);
      if (Below(6) == 0) {
        const char32_t c = AnyChar();
        for (size_t i = 0; i < repeats; ++i) AppendUtf8(c, text);
      } else {
        const std::string_view part = kParts[Below(std::size(kParts))];
        for (size_t i = 0; i < repeats; ++i) text += part;
      }
    }
    return text;
  }

  std::string Bytes(size_t most) {
    std::string bytes;
    for (size_t count = Below(most + 1); count > 0; --count) bytes.push_back(static_cast<char>(Below(256)));
    return bytes;
  }

  size_t Below(size_t bound) { return static_cast<size_t>(engine_() % bound); }

 private:
  char32_t AnyChar() {
    for (;;) {
      const auto c = static_cast<char32_t>(Below(Below(2) == 0 ? 0x3000 : 0x110000));
      if (c < 0xD800 || c > 0xDFFF) return c;
    }
  }

  std::mt19937_64 engine_;
};

}  // namespace octavo::text
