// 64 experts of uneven sizes (some empty) in int8, and one dense product of as many rows: what raggedness costs.
#include "bench/gemm_int.h"
#include "octavo/kernels/matmul_i8_grouped.h"

namespace octavo::bench {
namespace {

constexpr int64_t kExperts = 64;

struct Data {
  Data(Bench& bench, const Shape& s)
      : shape(s),
        a(static_cast<size_t>(s.m * s.k)),
        b(static_cast<size_t>(s.k * s.n)),
        memory(static_cast<size_t>(Stride() * kExperts)),
        row_scale(static_cast<size_t>(s.m), 0.37f),
        col_scale(static_cast<size_t>(s.n), 0.011f),
        out(static_cast<size_t>(s.m * s.n)) {
    auto code = AnyCode(1);
    for (int8_t& one : a) one = code(0);
    for (int8_t& one : b) one = code(0);
    for (int64_t e = 0; e < kExperts; ++e) {
      panels.push_back(kernels::PackPanelsI8(bench.pool, bench.isa, kernels::RowMajor<const int8_t>(b.data(), s.k, s.n),
                                             0, static_cast<int8_t*>(memory.data()) + e * Stride(), nullptr));
    }
    // Sizes in a ratio of 0 : 1 : … : 7 around the mean, the remainder to the last.
    int64_t left = s.m;
    for (int64_t e = 0; e < kExperts; ++e) {
      const int64_t size = e + 1 == kExperts ? left : std::min(left, s.m * ((e * 5) % 8) * 2 / (7 * kExperts));
      sizes.push_back(size);
      left -= size;
    }
  }
  int64_t Stride() const { return (kernels::PanelsI8Bytes(shape.k, shape.n, 0) + 63) / 64 * 64; }

  float Want(int64_t i, int64_t j) const {
    int32_t sum = 0;
    for (int64_t r = 0; r < shape.k; ++r) {
      sum += a[static_cast<size_t>(i * shape.k + r)] * b[static_cast<size_t>(r * shape.n + j)];
    }
    return (static_cast<float>(sum) * row_scale[0]) * col_scale[0];
  }

  Shape shape;
  std::vector<int8_t> a, b;
  kernels::Buffer memory;
  std::vector<float> row_scale, col_scale, out;
  std::vector<kernels::PanelsI8> panels;
  std::vector<int64_t> sizes;
};

}  // namespace

std::vector<Contender> I8GroupedContenders(Bench& bench, const Shape& shape) {
  if (shape.form != "nn" || shape.m < 2048 || shape.k * shape.n * kExperts > 250'000'000) return {};
  auto data = std::make_shared<Data>(bench, shape);
  const auto finish = [&](std::string name, auto run) {
    Contender ours = IntContender(shape, std::move(name), "int8", static_cast<double>(data->Stride()));
    ours.run = std::move(run);
    ours.check = [data] {
      return SampledOutputs(
          data->shape, 64, [&](int64_t i, int64_t j) { return data->Want(i, j); },
          [&](int64_t i, int64_t j) { return data->out[static_cast<size_t>(i * data->shape.n + j)]; });
    };
    return ours;
  };
  Contender ragged = finish("octavo ragged", [&bench, data](int64_t) {
    kernels::GroupedI8Args args;
    args.a = kernels::RowMajor<const int8_t>(data->a.data(), data->shape.m, data->shape.k);
    args.group_sizes = data->sizes;
    args.panels = data->panels;
    args.epilogue.row_scale = {data->row_scale.data()};
    args.epilogue.col_scale = {data->col_scale.data()};
    args.out.f32 = kernels::RowMajor(data->out.data(), data->shape.m, data->shape.n);
    args.workspace = &bench.workspace;
    kernels::GroupedMatMulI8(bench.pool, bench.isa, args);
  });
  Contender dense = finish("octavo dense", [&bench, data](int64_t turn) {
    kernels::MatMulI8Args args;
    args.a = kernels::RowMajor<const int8_t>(data->a.data(), data->shape.m, data->shape.k);
    args.panels = data->panels[static_cast<size_t>(turn % kExperts)];
    args.epilogue.row_scale = {data->row_scale.data()};
    args.epilogue.col_scale = {data->col_scale.data()};
    args.out.f32 = kernels::RowMajor(data->out.data(), data->shape.m, data->shape.n);
    args.workspace = &bench.workspace;
    kernels::MatMulI8(bench.pool, bench.isa, args);
  });
  return {ragged, dense};
}

}  // namespace octavo::bench
