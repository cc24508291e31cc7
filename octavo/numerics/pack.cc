#include "octavo/numerics/pack.h"

#include "octavo/base/check.h"
#include "octavo/base/error.h"

namespace octavo {
namespace {

void CheckWidth(int bits) {
  if (bits < 1 || bits > 8) ThrowUsage("codes to pack must have 1 to 8 bits, found {}", bits);
}

void CheckSizes(int64_t codes, int64_t packed, int bits) {
  if (packed != PackedBytes(codes, bits)) {
    ThrowUsage("{} codes of {} bits pack into {} bytes, found room for {}", codes, bits, PackedBytes(codes, bits),
               packed);
  }
}

}  // namespace

int64_t PackedBytes(int64_t count, int bits) {
  CheckWidth(bits);
  OCTAVO_CHECK(count >= 0);
  // Split so that no count overflows.
  return count / 8 * bits + (count % 8 * bits + 7) / 8;
}

void PackCodes(std::span<const uint8_t> codes, int bits, std::span<uint8_t> packed) {
  CheckWidth(bits);
  CheckSizes(static_cast<int64_t>(codes.size()), static_cast<int64_t>(packed.size()), bits);
  const uint32_t mask = (1u << bits) - 1u;
  uint32_t held = 0;
  int held_bits = 0;
  size_t at = 0;
  for (const uint8_t code : codes) {
    held |= (code & mask) << held_bits;
    held_bits += bits;
    if (held_bits >= 8) {
      packed[at++] = static_cast<uint8_t>(held);
      held >>= 8;
      held_bits -= 8;
    }
  }
  if (held_bits > 0) packed[at] = static_cast<uint8_t>(held);
}

void UnpackCodes(std::span<const uint8_t> packed, int bits, bool is_signed, std::span<uint8_t> codes) {
  CheckWidth(bits);
  CheckSizes(static_cast<int64_t>(codes.size()), static_cast<int64_t>(packed.size()), bits);
  const uint32_t mask = (1u << bits) - 1u;
  const uint32_t sign = is_signed ? 1u << (bits - 1) : 0u;
  if (bits == 4) {
    // Two codes to a byte and nothing carried over: compilers vectorize it, and models of int4 load at once.
    const size_t pairs = codes.size() / 2;
    const auto low_sign = static_cast<uint8_t>(sign);
    const uint8_t* from = packed.data();
    uint8_t* to = codes.data();
    for (size_t i = 0; i < pairs; ++i) {
      to[2 * i] = static_cast<uint8_t>(((from[i] & 15) ^ low_sign) - low_sign);
      to[2 * i + 1] = static_cast<uint8_t>(((from[i] >> 4) ^ low_sign) - low_sign);
    }
    if (codes.size() % 2 != 0) codes.back() = static_cast<uint8_t>(((packed[pairs] & 15) ^ low_sign) - low_sign);
    return;
  }
  uint32_t held = 0;
  int held_bits = 0;
  size_t at = 0;
  for (uint8_t& code : codes) {
    if (held_bits < bits) {
      held |= static_cast<uint32_t>(packed[at++]) << held_bits;
      held_bits += 8;
    }
    // (v ^ sign) - sign extends the sign bit; with sign = 0 it leaves v alone.
    code = static_cast<uint8_t>(((held & mask) ^ sign) - sign);
    held >>= bits;
    held_bits -= bits;
  }
}

void PackCodes(Format format, std::span<const uint8_t> codes, std::span<uint8_t> packed) {
  PackCodes(codes, Info(format).bits, packed);
}

void UnpackCodes(Format format, std::span<const uint8_t> packed, std::span<uint8_t> codes) {
  const FormatInfo& info = Info(format);
  UnpackCodes(packed, info.bits, info.kind == FormatKind::kInteger && info.has_sign, codes);
}

}  // namespace octavo
