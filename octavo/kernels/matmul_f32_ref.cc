#include <algorithm>
#include <cmath>

#include "octavo/kernels/matmul_f32_impl.h"
#include "octavo/kernels/weight_only.h"
#include "octavo/numerics/half.h"

namespace octavo::kernels {
namespace {

float Load(const FloatResult& c, int64_t at) {
  if (c.stored == Stored::kF32) return static_cast<const float*>(c.data)[at];
  const uint16_t code = static_cast<const uint16_t*>(c.data)[at];
  return c.stored == Stored::kBF16 ? BF16ToF32(code) : F16ToF32(code);
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
  const auto b_at = [&](int64_t k, int64_t n) {
    return args.packed_b != nullptr ? ValueAt(*args.packed_b, k, n) : ValueAt(args.b, k, n);
  };
  pool.ParallelFor(args.c.rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t m = begin; m < end; ++m) {
      for (int64_t n = 0; n < args.c.cols; ++n) {
        float acc = 0;
        for (int64_t k0 = 0; k0 < depth; k0 += kLeaf) {
          float leaf = 0;
          for (int64_t k = k0; k < std::min(k0 + kLeaf, depth); ++k) {
            leaf = std::fmaf(ValueAt(args.a, m, k), b_at(k, n), leaf);
          }
          acc = k0 == 0 ? leaf : acc + leaf;
        }
        Finish(args, m, n, acc);
      }
    }
  });
}

}  // namespace octavo::kernels
