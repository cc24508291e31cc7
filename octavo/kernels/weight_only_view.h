// Where the parts of packed weights lie. A plain struct for instruction-set units; owned by PackedWeights.
#pragma once

#include <cstdint>

#include "octavo/kernels/float_source.h"

namespace octavo::kernels {

// How the codes of a panel lie in memory. A panel is 16, 32 or 64 columns and all of K; one or two k of it are a block.
// Byte and nibble blocks are 32 bytes, ordered so that one load gives whole vectors of eight neighbouring columns
// without moving codes between lanes.
enum class Packing : uint8_t {
  kF32,        // 16 columns, 4 bytes each
  kBF16,       // 16 columns, 2 bytes each
  kF16,        // 16 columns, 2 bytes each
  kTableByte,  // 16 columns, a byte each: any table of 256 values
  kHalfByte,   // 32 columns, fp8 that is a shift away from f16, no NaN or infinity: byte 2 i + j is column 16 j + i
  // Whole numbers of some unit, stored with an offset that makes them positive: value = (code - offset) * unit. They
  // always have scales, positive and far from overflow and underflow, so that the offset can be taken away by the FMA
  // that applies the scale: fl(code * s - offset * s) is fl(value * s) because the offset is a power of two.
  kOffsetByte,    // 32 columns: byte 4 i + v is column 8 v + i; v = 3 is stored without the offset, with its sign
  kOffsetNibble,  // 32 columns, two k: half v % 2 of byte 4 i + 2 j + v / 2 is column 8 v + i, k j
  kOffsetLookup,  // 32 columns, two k: half j of byte 4 i + v is column 8 v + i, k j; it indexes a table of the above
  kNibbleTable,   // 64 columns, any table of 16 values: half u of byte 16 h + 4 q + i is column 32 u + 8 q + 4 h + i
};

inline constexpr int64_t PanelCols(Packing packing) {
  switch (packing) {
    case Packing::kHalfByte:
    case Packing::kOffsetByte:
    case Packing::kOffsetNibble:
    case Packing::kOffsetLookup:
      return 32;
    case Packing::kNibbleTable:
      return 64;
    default:
      return 16;
  }
}

// How many k a block holds.
inline constexpr int64_t BlockSteps(Packing packing) {
  return packing == Packing::kOffsetNibble || packing == Packing::kOffsetLookup ? 2 : 1;
}

// Bytes of one block.
inline constexpr int64_t BlockBytes(Packing packing) {
  switch (packing) {
    case Packing::kF32:
      return 64;
    case Packing::kTableByte:
      return 16;
    default:
      return 32;
  }
}

// The byte of column n and step j of a block, and whether it is in the upper half of the byte (nibbles).
struct CodePlace {
  int64_t byte;
  bool upper;
};
inline constexpr CodePlace PlaceOf(Packing packing, int64_t n, int64_t j) {
  switch (packing) {
    case Packing::kF32:
      return {n * 4, false};
    case Packing::kBF16:
    case Packing::kF16:
      return {n * 2, false};
    case Packing::kTableByte:
      return {n, false};
    case Packing::kHalfByte:
      return {n % 16 * 2 + n / 16, false};
    case Packing::kOffsetByte:
      return {n % 8 * 4 + n / 8, false};
    case Packing::kOffsetNibble:
      return {n % 8 * 4 + 2 * j + n / 16, n / 8 % 2 == 1};
    case Packing::kOffsetLookup:
      return {n % 8 * 4 + n / 8, j == 1};
    case Packing::kNibbleTable:
      return {n % 8 / 4 * 16 + n / 8 % 4 * 4 + n % 4, n >= 32};
  }
  return {0, false};
}

struct PackedView {
  Packing packing = Packing::kF32;
  int64_t depth = 0, cols = 0;
  const uint8_t* codes = nullptr;  // [panel][block]
  CodeTable table;             // kTableByte, kHalfByte, kNibbleTable: the values; kOffsetLookup: value / unit + offset
  float offset = 0, unit = 1;  // of the offset packings

  // Scales, [panel][group][column of the panel], as f32 or as bf16. k belongs to group (k + first) / group.
  bool has_scales = false, has_zero_points = false, short_scales = false;
  const void* scales = nullptr;
  const void* zero_points = nullptr;
  int64_t groups = 1, group = 1, first = 0;

  int64_t PanelBytes() const {
    const int64_t steps = BlockSteps(packing);
    return (depth + steps - 1) / steps * BlockBytes(packing);
  }
};

}  // namespace octavo::kernels
