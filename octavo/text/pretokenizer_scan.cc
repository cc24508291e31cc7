#include "octavo/text/pretokenizer_scan.h"

#include <array>
#include <cstring>

namespace octavo::text {
namespace {

constexpr uint16_t kWordClasses = kLetter | kNumber | kSpace;

// The class bits of ASCII, so that plain text never leaves one cache line or two.
constexpr std::array<uint8_t, 128> MakeAsciiClasses() {
  std::array<uint8_t, 128> classes{};
  for (size_t c = 0; c < 128; ++c) {
    if (c >= 'A' && c <= 'Z') classes[c] = kLetter | kUpperish;
    if (c >= 'a' && c <= 'z') classes[c] = kLetter | kLowerish;
    if (c >= '0' && c <= '9') classes[c] = kNumber;
    if ((c >= 9 && c <= 13) || c == ' ') classes[c] = kSpace;
  }
  return classes;
}
constexpr std::array<uint8_t, 128> kAscii = MakeAsciiClasses();

// The class of the character at `at`, which moves past it.
inline uint16_t Step(const CharClasses& classes, const char*& at) {
  const auto byte = static_cast<unsigned char>(*at);
  if (byte < 0x80) {
    ++at;
    return kAscii[byte];
  }
  return classes(NextChar(at));
}

// Skips characters that have one of `mask`.
inline const char* SkipIn(const CharClasses& classes, const char* at, const char* end, uint16_t mask) {
  while (at < end) {
    const char* next = at;
    if ((Step(classes, next) & mask) == 0) break;
    at = next;
  }
  return at;
}

// Skips characters that have none of `mask`.
inline const char* SkipNotIn(const CharClasses& classes, const char* at, const char* end, uint16_t mask) {
  while (at < end) {
    const char* next = at;
    if ((Step(classes, next) & mask) != 0) break;
    at = next;
  }
  return at;
}

inline const char* SkipNewlines(const char* at, const char* end, bool slashes) {
  while (at < end && (*at == '\r' || *at == '\n' || (slashes && *at == '/'))) ++at;
  return at;
}

// Length of 's 't 'm 'd 're 've 'll at `at`, or 0. Without case also the long s, which folds to s.
template <bool kAnyCase>
inline size_t Contraction(const char* at, const char* end) {
  if (end - at < 2 || *at != '\'') return 0;
  const auto fold = [](char c) { return kAnyCase && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  const char first = fold(at[1]);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  if (end - at < 3) return 0;
  if (kAnyCase && static_cast<unsigned char>(at[1]) == 0xC5 && static_cast<unsigned char>(at[2]) == 0xBF) return 3;
  const char second = fold(at[2]);
  if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l')) return 3;
  return 0;
}

// \s*[\r\n]+|\s+(?!\S)|\s+ at white space, or the last two only.
template <bool kNewlines, bool kWholeTail>
inline const char* Space(const CharClasses& classes, const char* at, const char* end) {
  const char* last = at;                // start of the last character of the run
  const char* after_newline = nullptr;  // after the last newline of the run
  const char* run = at;
  while (run < end) {
    const char* next = run;
    if ((Step(classes, next) & kSpace) == 0) break;
    if (kNewlines && (*run == '\r' || *run == '\n')) after_newline = next;
    last = run;
    run = next;
  }
  if (kWholeTail && run == end) return run;
  if (kNewlines && after_newline != nullptr) return after_newline;
  // Before more text the last white space goes to the next word.
  return run == end || last == at ? run : last;
}

const char* Gpt2Word(const CharClasses& classes, const char* at, const char* end) {
  if (const size_t length = Contraction<false>(at, end); length != 0) return at + length;
  const char* next = at;
  uint16_t first = Step(classes, next);
  if (*at == ' ' && next < end) {
    const char* second_end = next;
    const uint16_t second = Step(classes, second_end);
    if ((second & kSpace) == 0) {
      first = second;
      next = second_end;
    }
  }
  if ((first & kLetter) != 0) return SkipIn(classes, next, end, kLetter);
  if ((first & kNumber) != 0) return SkipIn(classes, next, end, kNumber);
  if ((first & kSpace) == 0) return SkipNotIn(classes, next, end, kWordClasses);
  return Space<false, false>(classes, at, end);
}

// The family of Llama 3, Qwen and cl100k: kDigits digits at a time, kLetters the classes of a word.
template <int kDigits, uint16_t kLetters, bool kWholeTail>
const char* Llama3Word(const CharClasses& classes, const char* at, const char* end) {
  if (const size_t length = Contraction<true>(at, end); length != 0) return at + length;
  const char* next = at;
  const uint16_t first = Step(classes, next);
  if ((first & kLetters) != 0) return SkipIn(classes, next, end, kLetters);
  if ((first & kNumber) != 0) {
    for (int digits = 1; digits < kDigits && next < end; ++digits) {
      const char* after = next;
      if ((Step(classes, after) & kNumber) == 0) break;
      next = after;
    }
    return next;
  }
  const bool newline = *at == '\r' || *at == '\n';
  if (!newline && next < end) {
    const char* second_end = next;
    const uint16_t second = Step(classes, second_end);
    if ((second & kLetters) != 0) return SkipIn(classes, second_end, end, kLetters);
    if (*at == ' ' && (second & (kWordClasses | kLetters)) == 0) {
      return SkipNewlines(SkipNotIn(classes, second_end, end, kWordClasses | kLetters), end, false);
    }
  }
  if ((first & kSpace) == 0) return SkipNewlines(SkipNotIn(classes, next, end, kWordClasses | kLetters), end, false);
  return Space<true, kWholeTail>(classes, at, end);
}

// [upperish]*[lowerish]+ at `at`: the end, or null.
inline const char* MixedWord(const CharClasses& classes, const char* at, const char* end) {
  const char* run = at;
  const char* after_last_lowerish = nullptr;
  while (run < end) {
    const char* next = run;
    const uint16_t bits = Step(classes, next);
    if ((bits & kUpperish) == 0) {
      if ((bits & kLowerish) != 0) return SkipIn(classes, next, end, kLowerish);
      break;
    }
    if ((bits & kLowerish) != 0) after_last_lowerish = next;
    run = next;
  }
  return after_last_lowerish;
}

const char* O200kWord(const CharClasses& classes, const char* at, const char* end) {
  const char* next = at;
  const uint16_t first = Step(classes, next);
  const bool lead = (first & (kLetter | kNumber)) == 0 && *at != '\r' && *at != '\n';
  const auto contracted = [&](const char* word_end) { return word_end + Contraction<true>(word_end, end); };
  if (lead) {
    if (const char* word_end = MixedWord(classes, next, end)) return contracted(word_end);
  }
  if (const char* word_end = MixedWord(classes, at, end)) return contracted(word_end);
  if (lead) {
    const char* word_end = SkipIn(classes, next, end, kUpperish);
    if (word_end != next) return contracted(word_end);
  }
  if (const char* word_end = SkipIn(classes, at, end, kUpperish); word_end != at) return contracted(word_end);
  if ((first & kNumber) != 0) {
    for (int digits = 1; digits < 3 && next < end; ++digits) {
      const char* after = next;
      if ((Step(classes, after) & kNumber) == 0) break;
      next = after;
    }
    return next;
  }
  if (*at == ' ' && next < end) {
    const char* second_end = next;
    if ((Step(classes, second_end) & kWordClasses) == 0) {
      return SkipNewlines(SkipNotIn(classes, second_end, end, kWordClasses), end, true);
    }
  }
  if ((first & kSpace) == 0) return SkipNewlines(SkipNotIn(classes, next, end, kWordClasses), end, true);
  return Space<true, false>(classes, at, end);
}

struct Known {
  std::string_view pattern;
  WordScanner scanner;
};

constexpr Known kKnown[] = {
    {kGpt2Pattern, &Gpt2Word},
    {kLlama3Pattern, &Llama3Word<3, kLetter, false>},
    {kQwen2Pattern, &Llama3Word<1, kLetter, false>},
    {kQwen35Pattern, &Llama3Word<1, kLetter | kMark, false>},
    {kO200kPattern, &O200kWord},
    {kCl100kPattern, &Llama3Word<3, kLetter, true>},
};

}  // namespace

WordScanner FindWordScanner(std::string_view pattern) {
  for (const Known& known : kKnown) {
    if (known.pattern == pattern) return known.scanner;
  }
  return nullptr;
}

}  // namespace octavo::text
