// f32 x f32 -> f32: the peers, and ours.
#include <algorithm>

#include "bench/common/check.h"
#include "bench/common/peers.h"
#include "bench/gemm.h"
#include "octavo/kernels/matmul_f32.h"

namespace octavo::bench {
namespace {

using kernels::FloatSource;

double F32Bytes(const Shape& s) {
  return 4.0 *
         (static_cast<double>(s.m) * static_cast<double>(s.k) + static_cast<double>(s.k) * static_cast<double>(s.n) +
          static_cast<double>(s.m) * static_cast<double>(s.n));
}

Contender Make(const Shape& shape, std::string name, std::shared_ptr<FloatOperands> data) {
  Contender contender;
  contender.name = std::move(name);
  contender.family = "f32";
  contender.macs = shape.macs();
  contender.bytes = F32Bytes(shape);
  contender.check = [shape, data] {
    return ExactProduct(
        shape.m, shape.n, shape.k, [&](int64_t i, int64_t r) { return data->A(shape, i, r); },
        [&](int64_t r, int64_t j) { return data->B(shape, r, j); },
        [&](int64_t i, int64_t j) { return data->c[static_cast<size_t>(i * shape.n + j)]; });
  };
  return contender;
}

}  // namespace

FloatOperands::FloatOperands(const Shape& shape)
    : a(shape, shape.m * shape.k), b(shape, shape.k * shape.n), c(static_cast<size_t>(shape.m * shape.n)) {
  uint32_t state = 12345;
  auto next = [&state](int64_t) {
    state = state * 1664525u + 1013904223u;
    return static_cast<float>(static_cast<int>((state >> 16) % 9) - 4);
  };
  a.Fill(next);
  b.Fill(next);
}

std::vector<Contender> BaselineContenders(Bench&, const Shape& shape) {
  auto data = std::make_shared<FloatOperands>(shape);
  const PeerProduct product{shape.m, shape.n, shape.k, shape.a_transposed(), shape.b_transposed()};
  std::vector<Contender> contenders;
  for (const auto& [name, call] : {std::pair{"OpenBLAS", &OpenBlasF32}, std::pair{"oneDNN", &OneDnnF32}}) {
    Contender peer = Make(shape, name, data);
    peer.foreign = true;
    peer.baseline = true;
    peer.run = [product, data, call](int64_t turn) { call(product, data->a[turn], data->b[turn], data->c.data()); };
    contenders.push_back(std::move(peer));
  }
  return contenders;
}

std::vector<Contender> F32Contenders(Bench& bench, const Shape& shape) {
  auto data = std::make_shared<FloatOperands>(shape);
  Contender ours = Make(shape, "octavo", data);
  ours.run = [&bench, shape, data](int64_t turn) {
    kernels::MatMulF32Args args;
    args.a = shape.a_transposed() ? kernels::SourceF32(data->a[turn], shape.k, shape.m).Transposed()
                                  : kernels::SourceF32(data->a[turn], shape.m, shape.k);
    args.b = shape.b_transposed() ? kernels::SourceF32(data->b[turn], shape.n, shape.k).Transposed()
                                  : kernels::SourceF32(data->b[turn], shape.k, shape.n);
    args.c = kernels::ResultF32(data->c.data(), shape.m, shape.n);
    kernels::MatMulF32(bench.pool, bench.isa, bench.workspace, args);
  };
  return {ours};
}

}  // namespace octavo::bench
