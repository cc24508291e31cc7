// Base64, as tiktoken's rank files and the character maps inside tokenizer.json use it. Decoding only.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace octavo::text {

// The bytes, or nothing for text that is not base64 (alphabet of RFC 4648 section 4, with or without padding).
std::optional<std::string> DecodeBase64(std::string_view text);

}  // namespace octavo::text
