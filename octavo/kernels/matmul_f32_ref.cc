#include <algorithm>
#include <bit>
#include <cmath>

#include "octavo/kernels/matmul_f32_impl.h"

namespace octavo::kernels {
namespace {

uint16_t F32ToBF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16 & 0x8000u) | 0x7fc0u);
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

uint16_t F32ToF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 65520 and above
  if (magnitude >= 0x38800000u) {
    return static_cast<uint16_t>(sign | ((magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13));
  }
  if (magnitude <= 0x33000000u) return static_cast<uint16_t>(sign);
  const uint32_t significand = (magnitude & 0x7fffffu) | 0x800000u;
  const uint32_t shift = 126u - (magnitude >> 23);
  return static_cast<uint16_t>(sign | (significand + (1u << (shift - 1)) - 1u + (significand >> shift & 1u)) >> shift);
}

float Load(const FloatResult& c, int64_t at) {
  if (c.stored == Stored::kF32) return static_cast<const float*>(c.data)[at];
  FloatSource one;
  one.data = static_cast<const uint16_t*>(c.data) + at;
  one.stored = c.stored;
  return ValueAt(one, 0, 0);
}

void Store(const FloatResult& c, int64_t at, float value) {
  if (c.stored == Stored::kF32) {
    static_cast<float*>(c.data)[at] = value;
  } else {
    static_cast<uint16_t*>(c.data)[at] = c.stored == Stored::kBF16 ? F32ToBF16(value) : F32ToF16(value);
  }
}

void Finish(const MatMulF32Args& args, int64_t m, int64_t n, float acc) {
  const EpilogueF32& e = args.epilogue;
  const int64_t at = m * args.c.row_stride + n * args.c.col_stride;
  float out = acc;
  if (e.row_scale.data != nullptr) out *= e.row_scale.data[m * e.row_scale.stride];
  if (e.col_scale.data != nullptr) out *= e.col_scale.data[n * e.col_scale.stride];
  if (e.bias.data != nullptr) out += e.bias.data[n * e.bias.stride];
  if (e.accumulate) out = Load(args.c, at) + out;
  Store(args.c, at, out);
}

}  // namespace

void MatMulF32Reference(ThreadPool& pool, const MatMulF32Args& args) {
  const int64_t depth = args.a.cols;
  pool.ParallelFor(args.c.rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t m = begin; m < end; ++m) {
      for (int64_t n = 0; n < args.c.cols; ++n) {
        float acc = 0;
        for (int64_t k0 = 0; k0 < depth; k0 += kLeaf) {
          float leaf = 0;
          for (int64_t k = k0; k < std::min(k0 + kLeaf, depth); ++k) {
            leaf = std::fmaf(ValueAt(args.a, m, k), ValueAt(args.b, k, n), leaf);
          }
          acc = k0 == 0 ? leaf : acc + leaf;
        }
        Finish(args, m, n, acc);
      }
    }
  });
}

}  // namespace octavo::kernels
