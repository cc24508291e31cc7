// Codes of fewer than 8 bits, packed: a little-endian stream of bits, so the first code of a byte sits in its low bits
// (two int4 or four int2 in a byte). For checkpoints and reference kernels; the panels of fast kernels have their own
// layouts.
#pragma once

#include <cstdint>
#include <span>

#include "octavo/numerics/format.h"

namespace octavo {

// Bytes that `count` packed codes of `bits` (1 … 8) take; the last byte is filled up with zeros.
int64_t PackedBytes(int64_t count, int bits);

// Packs the low `bits` of each unpacked code (stored in one byte, i8 or u8 alike). `packed` must have
// PackedBytes(codes.size(), bits) bytes.
void PackCodes(std::span<const uint8_t> codes, int bits, std::span<uint8_t> packed);

// The inverse. `is_signed` sign-extends each code, so that an int4 -1 comes back as the byte 0xff.
void UnpackCodes(std::span<const uint8_t> packed, int bits, bool is_signed, std::span<uint8_t> codes);

// The same for int2, int3, int4, uint2, uint4, float4, float6, nf4 …: width and sign from the format. Note that an int2
// or int3 is packed in its own width here, whatever its storage format.
void PackCodes(Format format, std::span<const uint8_t> codes, std::span<uint8_t> packed);
void UnpackCodes(Format format, std::span<const uint8_t> packed, std::span<uint8_t> codes);

}  // namespace octavo
