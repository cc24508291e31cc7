// Weights that another tool quantized, in the one form that all their files have in common: small codes in a matrix, a
// scale for each tile of it, perhaps a zero point, perhaps groups in another order than the rows. Made by the readers
// of prequantized.h. Knows how to become numbers, to the bit, and a QArray where ours can hold it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "octavo/numerics/format.h"
#include "octavo/tensor/qarray.h"
#include "octavo/tensor/tensor.h"

namespace octavo::weights {

struct Lattice {
  Format format = Format::kInt8;            // what a code means, unless there is a table
  Tensor codes;                             // [rows, columns], i8 or u8, unpacked
  Tensor scale;                             // f32, f16 or bf16, [row tiles, column tiles]
  std::optional<Tensor> zero;               // i32, like scale; value = (code - zero) * scale
  int64_t tile_rows = 1, tile_columns = 1;  // the last tile of an axis may be cut short
  // GPTQ's desc_act: the tile of each row (axis 0) or column (axis 1) where they do not follow each other.
  std::vector<int32_t> group_of;
  int group_axis = 0;
  float divisor = 1;         // bitsandbytes int8: value = code * scale / 127, two roundings
  std::vector<float> table;  // bitsandbytes: 16 values in place of the format
  std::string table_note;    // why the table is not one of our formats

  bool transposed = false;     // codes are [in, out], the weight [out, in]
  std::vector<int64_t> shape;  // of the weight; its elements are those of codes (transposed or not) in order
  bool swap_last = false;      // the last two axes of `shape` are swapped at the end (experts)
};

// Fails, with `where`, unless codes, scales, tiles and groups fit each other. Everything below assumes it.
void Validate(const Lattice& lattice, const std::string& where);

// The weight in f32: (code - zero) * scale, one rounding for the product, and one for a divisor.
Tensor Dequantize(const Lattice& lattice);

// The same as a QArray of the weight's shape, scale in its stored dtype. A divisor goes into the scale: the codes stay,
// the values may differ in the last place. nullopt with the reason where ours cannot hold
// it: scattered groups, tiles that do not divide, blocks that cross rows, a foreign table, zero points out of range.
std::optional<QArray> ToQArray(const Lattice& lattice, std::string* reason);

}  // namespace octavo::weights
