// The byte-level alphabet of GPT-2: a printable character for each byte, in which byte-level vocabularies are written.
// Used by the ByteLevel parts of a pipeline, by the trainer and by the GGUF loader.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "octavo/text/aligned_text.h"

namespace octavo::text {

// The character that stands for each byte.
const std::array<char32_t, 256>& ByteChars256();

// The byte that `c` stands for, or -1.
int ByteOfChar(char32_t c);

// `bytes` spelled in the alphabet, and back; nothing when a character is not of it.
std::string BytesToChars(std::string_view bytes);
std::optional<std::string> CharsToBytes(std::string_view chars);

// Replaces every byte of the text by its character; each stands for the whole character the byte came from.
void MapToByteChars(AlignedText& text);

}  // namespace octavo::text
