// The number types of GGML: one row per type, and the code of one block that decodes or makes it. A tensor of such a
// type is rows of blocks; a block holds a fixed number of neighbouring elements of a row. Used by the reader and the
// writer of GGUF files and by those who turn them into weights. Values are exact: the ones the gguf package gives.
// Not here: the file (gguf.h), what a tensor is for (weights/).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace octavo {

// The values are those of the files. Types that the format once had and dropped are not listed.
enum class GgmlType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ8_1 = 9,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kQ8_K = 15,
  kIQ2_XXS = 16,
  kIQ2_XS = 17,
  kIQ3_XXS = 18,
  kIQ1_S = 19,
  kIQ4_NL = 20,
  kIQ3_S = 21,
  kIQ2_S = 22,
  kIQ4_XS = 23,
  kI8 = 24,
  kI16 = 25,
  kI32 = 26,
  kI64 = 27,
  kF64 = 28,
  kIQ1_M = 29,
  kBF16 = 30,
  kTQ1_0 = 34,
  kTQ2_0 = 35,
  kMXFP4 = 39,
};

struct GgmlTypeInfo {
  GgmlType type;
  std::string_view name;  // "Q4_K"
  int block;              // elements of a block
  int bytes;              // of a block
  // One block. nullptr: the type is known but not read (a table of lattice points, a type of inner results) or not
  // made.
  void (*decode)(const uint8_t* block, float* values);
  void (*quantize)(const float* values, uint8_t* block);
};

std::span<const GgmlTypeInfo> AllGgmlTypes();
const GgmlTypeInfo* FindGgmlType(uint32_t value);         // nullptr: no such type
const GgmlTypeInfo* FindGgmlType(std::string_view name);  // the name in capitals, as in GGML
const GgmlTypeInfo& Info(GgmlType type);

// Blocks to values and back, whatever the floating-point mode of the thread. `values` must be as many as the blocks
// hold. A type without the function is a file (decoding) or usage (quantizing) error that names the types that have it.
void DecodeBlocks(GgmlType type, std::span<const std::byte> blocks, std::span<float> values);
void QuantizeBlocks(GgmlType type, std::span<const float> values, std::span<std::byte> blocks);

}  // namespace octavo
