// Quantized key-value caches: what is stored when a token is written and what is read back. A key or value vector has
// codes and the largest magnitude it was scaled by; the scale itself is made when it is read. Used by the engine's
// cache and, as a rule, by the trainer.
//
//   stored  amax = max|kv| over the axes; code = round(kv * fl(bound / amax)), saturated; fp8 in f32 arithmetic
//   read    scale = amax / bound; value = code * scale, in the dtype of the cache
#pragma once

#include <string_view>

#include "octavo/numerics/format.h"
#include "octavo/quant/arithmetic.h"
#include "octavo/tensor/tensor.h"

namespace octavo::quant {

enum class KvAxes : uint8_t { kDkv, kHeadsAndDkv };  // one amax per head and position, or one per position
KvAxes ParseKvAxes(std::string_view text);           // "dkv", "heads_and_dkv"
Format ParseKvFormat(std::string_view text);         // "int8", "int4", "fp8"; "float32" and "bfloat16" store rounded

struct KvQuant {
  Format format = Format::kInt8;  // int8, int4 or float8_e4m3fn
  KvAxes axes = KvAxes::kHeadsAndDkv;
  // A row of zeros gets zero codes. Without the guard it is 0 * infinity as in the reference, which stores NaN in fp8.
  bool zero_guard = true;
};

struct QuantizedKv {
  Tensor codes;  // like kv
  Tensor amax;   // length 1 on the reduced axes; in the dtype of kv
};

// kv [..., heads, dkv] in f32, bf16 or f16.
QuantizedKv QuantizeKv(const Tensor& kv, const KvQuant& how);
// The scale that a stored amax stands for. Each element alone, so the number of rows read together does not matter,
// unless `arithmetic` asks for the reference's rule.
Tensor KvReadScale(const Tensor& amax, const KvQuant& how, const Arithmetic& arithmetic = {});
Tensor DequantizeKv(const QuantizedKv& stored, const KvQuant& how, const Arithmetic& arithmetic = {});

}  // namespace octavo::quant
