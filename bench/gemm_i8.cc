// int8 x int8, operands quantized and the right one packed before: ours with exact sums, oneDNN's beside it.
#include "bench/common/check.h"
#include "bench/common/peers.h"
#include "bench/gemm.h"
#include "bench/gemm_int.h"
#include "octavo/kernels/matmul_i8.h"

namespace octavo::bench {
namespace {

struct Data {
  explicit Data(Bench& bench, const Shape& s)
      : shape(s),
        a(s, s.m * s.k),
        b(s, s.k * s.n),
        panels(s, kernels::PanelsI8Bytes(s.k, s.n, 0)),
        out(static_cast<size_t>(s.m * s.n)) {
    a.Fill(AnyCode(1));
    b.Fill(AnyCode(2));
    for (int64_t turn = 0; turn < panels.copies(); ++turn) {
      kernels::PackPanelsI8(bench.pool, bench.isa, RightView(s, b[0]), 0, panels[turn], nullptr);
    }
  }
  Verdict Check() const {
    const auto left = LeftView(shape, a[0]), right = RightView(shape, b[0]);
    return ExactProduct(
        shape.m, shape.n, shape.k, [&](int64_t i, int64_t r) { return left.at(i, r); },
        [&](int64_t r, int64_t j) { return right.at(r, j); },
        [&](int64_t i, int64_t j) { return out[static_cast<size_t>(i * shape.n + j)]; });
  }
  Shape shape;
  Copies<int8_t> a, b, panels;
  std::vector<int32_t> out;
};

}  // namespace

std::vector<Contender> I8Contenders(Bench& bench, const Shape& shape) {
  auto data = std::make_shared<Data>(bench, shape);
  Contender ours = IntContender(shape, "octavo", "int8", data->panels.bytes());
  ours.check = [data] { return data->Check(); };
  ours.run = [&bench, shape, data](int64_t turn) {
    kernels::MatMulI8Args args;
    args.a = LeftView(shape, data->a[turn]);
    args.panels = {data->panels[turn], nullptr, shape.k, shape.n, 0};
    args.out.i32 = kernels::RowMajor(data->out.data(), shape.m, shape.n);
    args.workspace = &bench.workspace;
    kernels::MatMulI8(bench.pool, bench.isa, args);
  };
  Contender peer = IntContender(shape, "oneDNN s8", "int8", data->b.bytes());
  peer.foreign = true;
  peer.check = ours.check;
  peer.run = [shape, data](int64_t turn) {
    OneDnnS8S8S32({shape.m, shape.n, shape.k, shape.a_transposed(), shape.b_transposed()}, data->a[turn], data->b[turn],
                  data->out.data());
  };
  return {ours, peer};
}

}  // namespace octavo::bench
