// CRC-32C (Castagnoli), and the masked form that record files use. For event files only; whatever Octavo writes for
// itself is under XXH3 digests (base/digest.h).
#pragma once

#include <cstdint>
#include <string_view>

namespace octavo::train {

uint32_t Crc32c(std::string_view bytes);

// Rotated and offset, so that a checksum of bytes that contain checksums stays useful.
inline uint32_t MaskedCrc32c(std::string_view bytes) {
  const uint32_t crc = Crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

}  // namespace octavo::train
