// The four Unicode normalization forms over a string, with the number of characters each output stands for, which is
// what keeps offsets aligned. Used by the normalizers. Character properties come from unicode.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace octavo::text {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// One character of a rewritten text and how it relates to the old one: 0 replaces one character, 1 is inserted, -n
// replaces one and swallows the n that follow.
struct CharChange {
  char32_t c;
  int change;
  bool operator==(const CharChange&) const = default;
};

// Appends the normal form of `text` (valid UTF-8).
void Normalize(std::string_view text, NormalForm form, std::vector<CharChange>& out);

// The NFC form of `text`, rewriting only the stretches that may change.
std::string NfcText(std::string_view text);

// True when `text` is certainly in NFC; false when it must be normalized to know.
bool IsNfcForSure(std::string_view text);

}  // namespace octavo::text
