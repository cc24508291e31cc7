#include <bit>
#include <cmath>

#include "octavo/kernels/bf16_bits.h"
#include "octavo/kernels/quantize.h"
#include "octavo/kernels/quantize_check.h"

namespace octavo::kernels {
namespace {

// One element as the quantizer sees it: the value times the folded scale, rounded in the source's type.
float Element(const QuantizeArgs& args, int64_t r, int64_t c) {
  const bool bf16 = args.source.is_bf16();
  float x = bf16 ? FloatFromBF16(args.source.bf16.at(r, c)) : args.source.f32.at(r, c);
  for (const float* pre :
       {args.pre_row == nullptr ? nullptr : args.pre_row + r, args.pre_col == nullptr ? nullptr : args.pre_col + c}) {
    if (pre == nullptr) continue;
    x = RoundIf(bf16, x * *pre);
  }
  return x;
}

// The largest magnitude of a block as bits: NaN is above infinity, so it survives.
float BlockAbsMax(const QuantizeArgs& args, int64_t block_row, int64_t block_col) {
  uint32_t largest = 0;
  const int64_t r_end = std::min(args.source.rows(), (block_row + 1) * args.block_rows);
  const int64_t c_end = std::min(args.source.cols(), (block_col + 1) * args.block_cols);
  for (int64_t r = block_row * args.block_rows; r < r_end; ++r) {
    for (int64_t c = block_col * args.block_cols; c < c_end; ++c) {
      largest = std::max(largest, std::bit_cast<uint32_t>(Element(args, r, c)) & 0x7FFFFFFFu);
    }
  }
  return std::bit_cast<float>(largest);
}

int8_t Code(const QuantizeArgs& args, float x, float scale, float zero, int64_t r, int64_t c) {
  const bool bf16 = args.source.is_bf16();
  const float factor = CodeFactor(args.spec, bf16, scale);
  float q = RoundIf(bf16, args.spec.code_division == Division::kTrue ? x / factor : x * factor);
  if (args.zero.data != nullptr) q = RoundIf(bf16, q + zero);
  if (args.noise.data != nullptr) q = q + args.noise.at(r, c);
  if (std::isnan(q)) return 0;
  q = std::min(std::max(q, static_cast<float>(args.spec.min_code)), static_cast<float>(args.spec.max_code));
  return static_cast<int8_t>(std::nearbyint(q));
}

}  // namespace

void AbsMaxScaleReference(const QuantizeArgs& args) {
  CheckQuantize(args, QuantizeStep::kScale);
  for (int64_t r = 0; r < args.scale.rows; ++r) {
    for (int64_t c = 0; c < args.scale.cols; ++c) {
      args.scale.at(r, c) = ScaleFromAbsMax(args.spec, args.source.is_bf16(), BlockAbsMax(args, r, c));
    }
  }
}

void QuantizeWithScaleReference(const QuantizeArgs& args) {
  CheckQuantize(args, QuantizeStep::kCodes);
  for (int64_t r = 0; r < args.codes.rows; ++r) {
    for (int64_t c = 0; c < args.codes.cols; ++c) {
      const int64_t br = r / args.block_rows, bc = c / args.block_cols;
      const float zero = args.zero.data == nullptr ? 0.0f : static_cast<float>(args.zero.at(br, bc));
      args.codes.at(r, c) = Code(args, Element(args, r, c), args.scale.at(br, bc), zero, r, c);
    }
  }
}

void QuantizeReference(const QuantizeArgs& args) {
  CheckQuantize(args, QuantizeStep::kBoth);
  AbsMaxScaleReference(args);
  QuantizeArgs codes = args;
  codes.zero = {};
  QuantizeWithScaleReference(codes);
}

void DequantizeReference(const DequantizeArgs& args) {
  CheckDequantize(args);
  for (int64_t r = 0; r < args.codes.rows; ++r) {
    for (int64_t c = 0; c < args.codes.cols; ++c) {
      const int64_t br = r / args.block_rows, bc = c / args.block_cols;
      const int32_t zero = args.zero.data == nullptr ? 0 : args.zero.at(br, bc);
      const float value = static_cast<float>(args.codes.at(r, c) - zero) * args.scale.at(br, bc);
      if (args.f32.data != nullptr) {
        args.f32.at(r, c) = value;
      } else {
        args.bf16.at(r, c) = BF16FromFloat(value);
      }
    }
  }
}

}  // namespace octavo::kernels
