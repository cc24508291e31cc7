// fp8 x fp8 -> f32 with scales in the epilogue: decoded in the pack, f32 sums. To be read beside our own f32.
#include <memory>

#include "bench/common/check.h"
#include "bench/gemm.h"
#include "octavo/kernels/code_table.h"
#include "octavo/kernels/matmul_f32.h"

namespace octavo::bench {
namespace {

// Codes of whole numbers from -4 to 4, so that every sum is exact.
struct Codes {
  Codes(const Shape& shape, const kernels::CodeTable& table)
      : a(shape, shape.m * shape.k), b(shape, shape.k * shape.n), c(static_cast<size_t>(shape.m * shape.n)) {
    std::vector<uint8_t> whole;
    for (int code = 0; code < 256; ++code) {
      const float v = table.value[code];
      if (v >= -4 && v <= 4 && v == static_cast<float>(static_cast<int>(v))) {
        whole.push_back(static_cast<uint8_t>(code));
      }
    }
    uint32_t state = 77;
    const auto next = [&](int64_t) {
      state = state * 1664525u + 1013904223u;
      return whole[(state >> 16) % whole.size()];
    };
    a.Fill(next);
    b.Fill(next);
  }
  Copies<uint8_t> a, b;
  std::vector<float> c;
  float one = 1;
};

}  // namespace

std::vector<Contender> Fp8Contenders(Bench& bench, const Shape& shape) {
  if (shape.decode()) return {};
  const kernels::CodeTable& table = kernels::CodeTableOf(Format::kF8E4M3FN);
  auto data = std::make_shared<Codes>(shape, table);
  Contender ours;
  ours.name = "octavo e4m3";
  ours.family = "fp8";
  ours.macs = shape.macs();
  ours.bytes = static_cast<double>(shape.m * shape.k + shape.k * shape.n + 4 * shape.m * shape.n);
  ours.run = [&bench, shape, data, &table](int64_t turn) {
    kernels::MatMulF32Args args;
    args.a = shape.a_transposed() ? kernels::SourceBytes(data->a[turn], table, shape.k, shape.m).Transposed()
                                  : kernels::SourceBytes(data->a[turn], table, shape.m, shape.k);
    args.b = shape.b_transposed() ? kernels::SourceBytes(data->b[turn], table, shape.n, shape.k).Transposed()
                                  : kernels::SourceBytes(data->b[turn], table, shape.k, shape.n);
    args.c = kernels::ResultF32(data->c.data(), shape.m, shape.n);
    args.epilogue.row_scale = {&data->one, 0};
    args.epilogue.col_scale = {&data->one, 0};
    kernels::MatMulF32(bench.pool, bench.isa, bench.workspace, args);
  };
  ours.check = [shape, data, &table] {
    return ExactProduct(
        shape.m, shape.n, shape.k,
        [&](int64_t i, int64_t r) {
          return table.value[data->a[0][shape.a_transposed() ? r * shape.m + i : i * shape.k + r]];
        },
        [&](int64_t r, int64_t j) {
          return table.value[data->b[0][shape.b_transposed() ? j * shape.k + r : r * shape.n + j]];
        },
        [&](int64_t i, int64_t j) { return data->c[static_cast<size_t>(i * shape.n + j)]; });
  };
  return {ours};
}

}  // namespace octavo::bench
