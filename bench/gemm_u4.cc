// int8 activations x int4 weights: per channel and in groups of 128 and 32 along K.
#include "bench/gemm_int.h"
#include "octavo/kernels/matmul_u4.h"

namespace octavo::bench {
namespace {

struct Data {
  Data(Bench& bench, const Shape& s, int64_t group_)
      : shape(s),
        group(group_),
        groups(group == 0 ? 1 : s.k / group),
        a(s, s.m * s.k),
        panels(s, kernels::PanelsU4Bytes(s.k, s.n, group)),
        scales(s, groups * s.n),
        row_scale(static_cast<size_t>(s.m), 0.37f),
        codes(static_cast<size_t>(s.k * s.n)),
        out(static_cast<size_t>(s.m * s.n)) {
    a.Fill(AnyCode(1));
    auto code = AnyCode(2, -8, 7);
    for (int8_t& one : codes) one = code(0);
    scales.Fill(AnyFloat(3));
    const auto view = kernels::RowMajor<const int8_t>(codes.data(), s.k, s.n);
    for (int64_t turn = 0; turn < panels.copies(); ++turn) {
      kernels::PackPanelsU4(bench.pool, bench.isa, view, group, panels[turn], nullptr);
    }
  }

  void Run(Bench& bench, int64_t turn) {
    kernels::MatMulU4Args args;
    args.a = kernels::RowMajor<const int8_t>(a[turn], shape.m, shape.k);
    args.panels = {panels[turn], nullptr, shape.k, shape.n, group};
    args.epilogue.row_scale = {row_scale.data()};
    // In panels, as a served weight keeps them: the scales of 16 columns for all groups, then the next 16.
    args.epilogue.col_scale = {scales[turn], 1, 16, groups * 16};
    args.out.f32 = kernels::RowMajor(out.data(), shape.m, shape.n);
    args.workspace = &bench.workspace;
    kernels::MatMulU4(bench.pool, bench.isa, args);
  }

  float Want(int64_t i, int64_t j) const {
    float total = 0;
    const int64_t length = shape.k / groups;
    for (int64_t g = 0; g < groups; ++g) {
      int32_t sum = 0;
      for (int64_t r = g * length; r < (g + 1) * length; ++r) {
        sum += a[0][i * shape.k + r] * codes[static_cast<size_t>(r * shape.n + j)];
      }
      const float scale = scales[0][j / 16 * groups * 16 + g * 16 + j % 16];
      const float part = (static_cast<float>(sum) * row_scale[static_cast<size_t>(i)]) * scale;
      total = g == 0 ? part : total + part;
    }
    return total;
  }

  Shape shape;
  int64_t group, groups;
  Copies<int8_t> a;
  Copies<uint8_t> panels;
  Copies<float> scales;
  std::vector<float> row_scale;
  std::vector<int8_t> codes;
  std::vector<float> out;
};

}  // namespace

std::vector<Contender> U4Contenders(Bench& bench, const Shape& shape) {
  if (shape.form != "nn" || shape.k % 128 != 0 || shape.n % 16 != 0) return {};
  std::vector<Contender> contenders;
  for (const int64_t group : {0, 128, 32}) {
    auto data = std::make_shared<Data>(bench, shape, group);
    Contender ours = IntContender(shape, group == 0 ? "octavo channel" : "octavo group " + std::to_string(group),
                                  "int4", data->panels.bytes() + data->scales.bytes());
    ours.run = [&bench, data](int64_t turn) { data->Run(bench, turn); };
    ours.check = [data] {
      return SampledOutputs(
          data->shape, 64, [&](int64_t i, int64_t j) { return data->Want(i, j); },
          [&](int64_t i, int64_t j) { return data->out[static_cast<size_t>(i * data->shape.n + j)]; });
    };
    contenders.push_back(std::move(ours));
  }
  return contenders;
}

}  // namespace octavo::bench
