// f32 activations x stored weights -> f32, decoded on the way: what serving does when only the weights are quantized.
#include <cmath>
#include <memory>

#include "bench/common/check.h"
#include "bench/gemm.h"
#include "octavo/kernels/code_table.h"
#include "octavo/kernels/matmul_f32.h"
#include "octavo/kernels/weight_only.h"

namespace octavo::bench {
namespace {

// How weights are stored for one contender.
struct WeightKind {
  const char* name;
  Format format;
  int64_t group;  // along K; 0: one scale per column; -1: no scales
  bool powers;    // scales are powers of two (mx, nv), else any number
};

const WeightKind kKinds[] = {
    {"bf16", Format::kBF16, -1, false},
    {"int8 per column", Format::kInt8, 0, false},
    {"int8 groups 128", Format::kInt8, 128, false},
    {"int4 per column", Format::kInt4, 0, false},
    {"int4 groups 128", Format::kInt4, 128, false},
    {"int4 groups 32", Format::kInt4, 32, false},
    {"nf4 groups 32", Format::kNF4, 32, false},
    {"fp8 per column", Format::kF8E4M3FN, 0, false},
    {"mxfp8", Format::kF8E4M3FN, 32, true},
    {"mxfp4", Format::kF4E2M1FN, 32, true},
    {"nvfp4", Format::kF4E2M1FN, 16, true},
};

uint32_t Next(uint32_t& state) {
  state = state * 1664525u + 1013904223u;
  return state >> 8;
}

// Random codes [K, N] with scales, packed in as many copies as it takes to outgrow the caches.
struct Weights {
  Weights(Bench& bench, const Shape& shape, const WeightKind& kind) {
    FillCodes(shape, kind.format);
    if (kind.group >= 0) FillScales(shape, kind);
    packed.push_back(kernels::PackWeights(bench.pool, source));
    const int64_t copies = shape.decode() ? 100'000'000 / packed[0].bytes() + 2 : 1;
    while (static_cast<int64_t>(packed.size()) < copies) packed.push_back(kernels::PackWeights(bench.pool, source));
  }

  void FillCodes(const Shape& shape, Format format) {
    const size_t count = static_cast<size_t>(shape.k * shape.n);
    if (format == Format::kBF16) {
      halves.resize(count);
      for (uint16_t& h : halves) h = static_cast<uint16_t>(0x3f00 + Next(state) % 256);
      source = kernels::SourceBF16(halves.data(), shape.k, shape.n);
      return;
    }
    codes.resize(count);
    const kernels::CodeTable& table = kernels::CodeTableOf(format);
    for (uint8_t& c : codes) {
      do {
        c = static_cast<uint8_t>(Next(state));
      } while (!std::isfinite(table.value[c]));
    }
    source = kernels::SourceBytes(codes.data(), table, shape.k, shape.n);
  }

  void FillScales(const Shape& shape, const WeightKind& kind) {
    const int64_t group = kind.group == 0 ? shape.k : kind.group;
    scales.resize(static_cast<size_t>((shape.k + group - 1) / group * shape.n));
    for (float& s : scales) {
      const int r = static_cast<int>(Next(state) % 1000);
      s = kind.powers ? std::ldexp(1.0f, r % 5 - 8) : 0.001f + static_cast<float>(r) * 1e-5f;
    }
    source.scales.scale = scales.data();
    source.scales.tile_rows = group;
    source.scales.row_stride = kind.group == 0 ? 0 : shape.n;
    source.scales.col_stride = 1;
  }

  uint32_t state = 99;
  std::vector<uint8_t> codes;
  std::vector<uint16_t> halves;
  std::vector<float> scales;
  kernels::FloatSource source;
  std::vector<kernels::PackedWeights> packed;
};

Contender Make(Bench& bench, const Shape& shape, const WeightKind& kind) {
  auto weights = std::make_shared<Weights>(bench, shape, kind);
  auto a = std::make_shared<std::vector<float>>(static_cast<size_t>(shape.m * shape.k));
  auto c = std::make_shared<std::vector<float>>(static_cast<size_t>(shape.m * shape.n));
  uint32_t state = 5;
  for (float& v : *a) v = static_cast<float>(static_cast<int>(Next(state) % 2000) - 1000) * 0.001f;
  Contender ours;
  ours.name = kind.name;
  ours.family = "weights";
  ours.macs = shape.macs();
  ours.bytes = static_cast<double>(weights->packed[0].bytes()) + 4.0 * static_cast<double>(a->size() + c->size());
  ours.run = [&bench, shape, weights, a, c](int64_t turn) {
    kernels::MatMulF32Args args;
    args.a = kernels::SourceF32(a->data(), shape.m, shape.k);
    args.packed_b = &weights->packed[static_cast<size_t>(turn) % weights->packed.size()];
    args.c = kernels::ResultF32(c->data(), shape.m, shape.n);
    kernels::MatMulF32(bench.pool, bench.isa, bench.workspace, args);
  };
  ours.check = [shape, weights, a, c] {
    return SampledBits(
        shape.m, shape.n, shape.k, 400,
        [&](int64_t i, int64_t r) { return (*a)[static_cast<size_t>(i * shape.k + r)]; },
        [&](int64_t r, int64_t j) { return kernels::ValueAt(weights->source, r, j); },
        [&](int64_t i, int64_t j) { return (*c)[static_cast<size_t>(i * shape.n + j)]; });
  };
  return ours;
}

}  // namespace

std::vector<Contender> WeightContenders(Bench& bench, const Shape& shape) {
  std::vector<Contender> contenders;
  if (shape.form != "nn") return contenders;
  for (const WeightKind& kind : kKinds) contenders.push_back(Make(bench, shape, kind));
  return contenders;
}

}  // namespace octavo::bench
