// f32 to f32 through int8, everything included. Forward (nn): rows of x and columns of w are quantized, multiplied,
// scaled. Gradient of the input (nt): g times the weight's scales, quantized by row, times the weight's codes.
// Gradient of the weight (tn): g times the input's scales, quantized by column, times the input's codes. The codes of
// the other operand exist from the forward pass and are packed here.
#include <algorithm>

#include "bench/gemm_int.h"
#include "octavo/kernels/matmul_i8.h"
#include "octavo/kernels/quantize.h"

namespace octavo::bench {
namespace {

using kernels::MatrixView;
using kernels::RowMajor;

struct Data {
  explicit Data(const Shape& s)
      : shape(s),
        a(s, s.m * s.k),
        b(s, s.k * s.n),
        a_codes(static_cast<size_t>(s.m * s.k)),
        b_codes(static_cast<size_t>(s.k * s.n)),
        a_scale(static_cast<size_t>(s.m)),
        b_scale(static_cast<size_t>(s.n)),
        pre(static_cast<size_t>(s.k)),
        out(static_cast<size_t>(s.m * s.n)) {
    a.Fill(AnyFloat(1));
    b.Fill(AnyFloat(2));
    auto code = AnyCode(3);
    auto scale = AnyFloat(4);
    if (s.b_transposed()) std::generate(b_codes.begin(), b_codes.end(), [&] { return code(0); });
    if (s.a_transposed()) std::generate(a_codes.begin(), a_codes.end(), [&] { return code(0); });
    std::generate(pre.begin(), pre.end(), [&] { return std::fabs(scale(0)) * 0.01f; });
  }

  // One scale per row of `values` (or per column), folded factors along K when they exist.
  void QuantizeLeft(Bench& bench, int64_t turn, bool folded) {
    kernels::QuantizeArgs args;
    args.source.f32 = RowMajor<const float>(a[turn], shape.m, shape.k);
    args.block_cols = shape.k;
    if (folded) args.pre_col = pre.data();
    args.scale = RowMajor(a_scale.data(), shape.m, 1);
    args.codes = RowMajor(a_codes.data(), shape.m, shape.k);
    kernels::Quantize(bench.pool, bench.isa, args);
  }
  void QuantizeRight(Bench& bench, int64_t turn, bool folded) {
    kernels::QuantizeArgs args;
    args.source.f32 = RowMajor<const float>(b[turn], shape.k, shape.n);
    args.block_rows = shape.k;
    if (folded) args.pre_row = pre.data();
    args.scale = RowMajor(b_scale.data(), 1, shape.n);
    args.codes = RowMajor(b_codes.data(), shape.k, shape.n);
    kernels::Quantize(bench.pool, bench.isa, args);
  }

  void Run(Bench& bench, int64_t turn) {
    kernels::MatMulI8Args args;
    const bool forward = !shape.a_transposed() && !shape.b_transposed();
    if (!shape.a_transposed()) {
      QuantizeLeft(bench, turn, !forward);
      args.epilogue.row_scale = {a_scale.data()};
    }
    if (!shape.b_transposed()) {
      QuantizeRight(bench, turn, !forward);
      args.epilogue.col_scale = {b_scale.data()};
    }
    args.a = LeftView<int8_t>(shape, a_codes.data());
    args.b = RightView<int8_t>(shape, b_codes.data());
    args.out.f32 = RowMajor(out.data(), shape.m, shape.n);
    args.workspace = &bench.workspace;
    kernels::MatMulI8(bench.pool, bench.isa, args);
  }

  // Output (i, j) from the sources, by the rule of the quantizer.
  float Want(int64_t i, int64_t j) const {
    const bool forward = !shape.a_transposed() && !shape.b_transposed();
    const auto codes = [&](auto&& value, float& scale, std::vector<int8_t>& to) {
      float absmax = 0;
      for (int64_t r = 0; r < shape.k; ++r) absmax = std::max(absmax, std::fabs(value(r)));
      scale = absmax * (1.0f / 127.5f);
      for (int64_t r = 0; r < shape.k; ++r) {
        to.push_back(static_cast<int8_t>(std::clamp(std::nearbyint(value(r) * (1.0f / scale)), -128.0f, 127.0f)));
      }
    };
    float left_scale = 1, right_scale = 1;
    std::vector<int8_t> left, right;
    const auto folded = [&](int64_t r) { return forward ? 1.0f : pre[static_cast<size_t>(r)]; };
    if (shape.a_transposed()) {
      for (int64_t r = 0; r < shape.k; ++r) left.push_back(a_codes[static_cast<size_t>(r * shape.m + i)]);
    } else {
      codes([&](int64_t r) { return a[0][i * shape.k + r] * folded(r); }, left_scale, left);
    }
    if (shape.b_transposed()) {
      for (int64_t r = 0; r < shape.k; ++r) right.push_back(b_codes[static_cast<size_t>(j * shape.k + r)]);
    } else {
      codes([&](int64_t r) { return b[0][r * shape.n + j] * folded(r); }, right_scale, right);
    }
    int32_t sum = 0;
    for (size_t r = 0; r < left.size(); ++r) sum += left[r] * right[r];
    return (static_cast<float>(sum) * left_scale) * right_scale;
  }

  Shape shape;
  Copies<float> a, b;
  std::vector<int8_t> a_codes, b_codes;
  std::vector<float> a_scale, b_scale, pre, out;
};

}  // namespace

std::vector<Contender> I8LinearContenders(Bench& bench, const Shape& shape) {
  if (shape.decode()) return {};  // a served weight is quantized once, not per step
  auto data = std::make_shared<Data>(shape);
  Contender ours = IntContender(shape, shape.form == "nn" ? "octavo linear" : "octavo gradient", "int8", 0);
  ours.bytes = 4.0 * (static_cast<double>(shape.m) * static_cast<double>(shape.k) +
                      static_cast<double>(shape.k) * static_cast<double>(shape.n) +
                      static_cast<double>(shape.m) * static_cast<double>(shape.n));
  ours.run = [&bench, data](int64_t turn) { data->Run(bench, turn); };
  ours.check = [data] {
    return SampledOutputs(
        data->shape, 64, [&](int64_t i, int64_t j) { return data->Want(i, j); },
        [&](int64_t i, int64_t j) { return data->out[static_cast<size_t>(i * data->shape.n + j)]; });
  };
  return {ours};
}

}  // namespace octavo::bench
