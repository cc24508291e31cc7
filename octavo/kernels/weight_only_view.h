// Where the parts of packed weights lie. A plain struct for instruction-set units; owned by PackedWeights.
#pragma once

#include <cstdint>

#include "octavo/kernels/float_source.h"

namespace octavo::kernels {

inline constexpr int64_t kPanelCols = 16;

// How the codes of a panel (16 columns, all of K) lie in memory. k and n count inside the panel.
enum class Packing : uint8_t {
  kF32,        // [K][16] floats
  kBF16,       // [K][16] 16-bit codes
  kF16,        // [K][16]
  kI8,         // [K][16] bytes
  kHalfByte,   // [K / 2][16][2] bytes: fp8 that is a shift away from f16; no code is a NaN or an infinity
  kTableByte,  // [K][16] bytes: any table of 256 values
  // Four k by 16 columns in 32 bytes. Columns 0 … 7 in the low halves, 8 … 15 in the high halves of the bytes.
  kNibbleShort,  // a table of values that bf16 holds; byte 16 h + 8 q + 2 i + j is column 4 h + i, k 2 q + j
  kNibbleLong,   // any table; byte 16 h + 4 q + i is column 4 h + i, k q
};

struct PackedView {
  Packing packing = Packing::kF32;
  int64_t depth = 0, cols = 0;
  const uint8_t* codes = nullptr;
  int64_t panel_bytes = 0;  // from one panel to the next
  CodeTable table;          // for the byte and nibble packings

  // Scales, [panel][group][16], as f32 or as bf16. k belongs to group (k + first) / group.
  bool has_scales = false, has_zero_points = false, short_scales = false;
  const void* scales = nullptr;
  const void* zero_points = nullptr;
  int64_t groups = 1, group = 1, first = 0;
};

// Bytes from one panel to the next: `rows` of k are rounded up to what the packing interleaves.
inline constexpr int64_t PanelBytes(Packing packing, int64_t depth) {
  switch (packing) {
    case Packing::kF32:
      return depth * 64;
    case Packing::kBF16:
    case Packing::kF16:
      return depth * 32;
    case Packing::kI8:
    case Packing::kTableByte:
      return depth * 16;
    case Packing::kHalfByte:
      return (depth + 1) / 2 * 32;
    case Packing::kNibbleShort:
    case Packing::kNibbleLong:
      return (depth + 3) / 4 * 32;
  }
  return 0;
}

// The byte of element (k, n) of a panel, and whether it is in the upper half (nibbles).
struct CodePlace {
  int64_t byte;
  bool upper;
};
inline constexpr CodePlace PlaceOf(Packing packing, int64_t k, int64_t n) {
  switch (packing) {
    case Packing::kF32:
      return {(k * 16 + n) * 4, false};
    case Packing::kBF16:
    case Packing::kF16:
      return {(k * 16 + n) * 2, false};
    case Packing::kI8:
    case Packing::kTableByte:
      return {k * 16 + n, false};
    case Packing::kHalfByte:
      return {k / 2 * 32 + n * 2 + k % 2, false};
    case Packing::kNibbleShort:
      return {k / 4 * 32 + n % 8 / 4 * 16 + k % 4 / 2 * 8 + n % 4 * 2 + k % 2, n >= 8};
    case Packing::kNibbleLong:
      return {k / 4 * 32 + n % 8 / 4 * 16 + k % 4 * 4 + n % 4, n >= 8};
  }
  return {0, false};
}

}  // namespace octavo::kernels
