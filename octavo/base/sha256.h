// SHA-256 and a comparison that takes as long for unequal digests as for equal ones: API keys are kept and compared as
// digests, so that neither memory nor timing tells a key. Not for files: digest.h is ten times faster.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace octavo {

using Sha256Digest = std::array<uint8_t, 32>;

Sha256Digest Sha256(std::string_view bytes);

// 64 lower-case hexadecimal digits.
std::string Sha256Hex(std::string_view bytes);

bool EqualInConstantTime(const Sha256Digest& a, const Sha256Digest& b);

}  // namespace octavo
