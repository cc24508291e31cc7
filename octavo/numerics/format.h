// Number formats: one row per format, and the scalar code that is the reference for every faster version. Used by
// everyone above; knows nothing of tensors, scales or policy. Add a format: one row in format.cc, its codes in the
// tests.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "octavo/numerics/dtype.h"

namespace octavo {

enum class Format : uint8_t {
  // integers; a code is the value itself
  kInt2,
  kInt3,
  kInt4,
  kInt5,
  kInt6,
  kInt7,
  kInt8,
  kInt16,
  kInt32,
  kUint2,
  kUint4,
  kUint8,
  // small floats; a code is the bit pattern
  kF8E4M3FN,
  kF8E5M2,
  kF8E4M3FNUZ,
  kF8E5M2FNUZ,
  kF8E4M3,
  kF8E3M4,
  kF8E4M3B11FNUZ,
  kF8E8M0FNU,
  kF6E2M3FN,
  kF6E3M2FN,
  kF4E2M1FN,
  // a table of 16 values; a code is the index
  kNF4,
  // 16 and 32 bits
  kBF16,
  kF16,
  kF32,
  // small floats with scales in blocks of a fixed size
  kMxfp8,
  kMxfp8_16,
  kMxfp4,
  kNvfp4,
};

enum class FormatKind : uint8_t { kInteger, kFloat, kTable };

}  // namespace octavo
