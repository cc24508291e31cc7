// The scale rule and the rectangles that the quantizer's instruction-set units work on. Plain structs; see quantize.h
// for the meaning.
#pragma once

#include <cstdint>

#include "octavo/kernels/bf16_bits.h"

namespace octavo::kernels {

enum class Division : uint8_t { kReciprocal, kTrue };

struct QuantizeSpec {
  float bound = 127.5f;
  int32_t min_code = -128, max_code = 127;
  float factor = 1.0f;  // multiplies absmax; exactly 1 is no multiplication
  Division scale_division = Division::kReciprocal;
  Division code_division = Division::kReciprocal;
};

[[maybe_unused]] static inline float RoundIf(bool bf16, float value) { return bf16 ? RoundToBF16(value) : value; }

// absmax [* factor] / bound with the zero guard.
[[maybe_unused]] static inline float ScaleFromAbsMax(const QuantizeSpec& spec, bool bf16, float absmax) {
  if (spec.factor != 1.0f) absmax = RoundIf(bf16, absmax * RoundIf(bf16, spec.factor));
  const float bound = RoundIf(bf16, spec.bound);
  const float scale = spec.scale_division == Division::kTrue ? RoundIf(bf16, absmax / bound)
                                                             : RoundIf(bf16, absmax * RoundIf(bf16, 1.0f / bound));
  return scale < 0x1p-63f ? 1.0f : scale;
}

// What a value is multiplied by (reciprocal) or divided by (true).
[[maybe_unused]] static inline float CodeFactor(const QuantizeSpec& spec, bool bf16, float scale) {
  return spec.code_division == Division::kTrue ? scale : RoundIf(bf16, 1.0f / scale);
}

// Whether codes need no care: no quotient is NaN, none is past 128.5, and saturation to int8 is the clamp.
[[maybe_unused]] static inline bool IsTame(const QuantizeSpec& spec, uint32_t absmax_bits) {
  return absmax_bits < 0x7F800000u && spec.bound <= 128.0f && spec.min_code == -128 && spec.max_code == 127 &&
         spec.factor >= 1.0f;
}

// A rectangle of values, contiguous along its rows.
struct QuantizeTile {
  const float* f32 = nullptr;  // one of the two
  const uint16_t* bf16 = nullptr;
  int64_t rows = 0, cols = 0, row_stride = 0;
  const float* pre_row = nullptr;  // [rows] or null
  const float* pre_col = nullptr;  // [cols] or null
  const float* noise = nullptr;    // null, or with these strides (columns: 0 or 1)
  int64_t noise_row_stride = 0, noise_col_stride = 0;
  const float* factor = nullptr;  // CodeFactor of the scales: one, or [cols]
  const float* zero = nullptr;    // zero points as floats: null, one, or [cols]
  bool per_column = false;
  bool divide = false;
  bool tame = false;  // the factors come from finite maxima of these very values, and the codes are all of int8
  float min_code = 0, max_code = 0;
  int8_t* codes = nullptr;
  int64_t codes_row_stride = 0, codes_col_stride = 1;
};

// Largest magnitude as bits, of all values, or per column merged into best[cols].
uint32_t AbsMaxTileAvx2(const QuantizeTile& tile);
void AbsMaxColumnsAvx2(const QuantizeTile& tile, uint32_t* best);
// The codes of a rectangle.
void QuantizeTileAvx2(const QuantizeTile& tile);
// Rows cut into blocks of `width` columns: scale[r * row_step + block * step], then the codes.
void QuantizeRowBlocksAvx2(const QuantizeTile& tile, const QuantizeSpec& spec, int64_t width, float* scale,
                           int64_t row_step, int64_t step);

// A rectangle of codes on its way back, contiguous along its rows on both sides.
struct DequantizeTile {
  const int8_t* codes = nullptr;
  int64_t rows = 0, cols = 0, codes_row_stride = 0;
  const float* scale = nullptr;  // one, or [cols]
  const float* zero = nullptr;   // the same, or null
  bool per_column = false;
  float* f32 = nullptr;  // one of the two
  uint16_t* bf16 = nullptr;
  int64_t row_stride = 0;
};
void DequantizeTileAvx2(const DequantizeTile& tile);

}  // namespace octavo::kernels
