// Self tests of the products: f32 and what is decoded to it, int8, int8 x int4.
#include "octavo/kernels/matmul_f32.h"
#include "octavo/kernels/matmul_i8.h"
#include "octavo/kernels/matmul_u4.h"
#include "octavo/kernels/self_test_cases.h"
#include "octavo/kernels/workspace.h"

namespace octavo::kernels {
namespace {

struct Shape {
  int64_t m, n, k;
};
constexpr Shape kShapes[] = {{1, 67, 300}, {5, 33, 517}, {67, 45, 600}};

std::string Named(const char* what, const Shape& s) {
  return std::string(what) + " [" + std::to_string(s.m) + ", " + std::to_string(s.k) + "] x [" + std::to_string(s.k) +
         ", " + std::to_string(s.n) + "]";
}

// All of -128 … 127, or of -8 … 7.
std::vector<int8_t> SampleCodes(int64_t count, uint64_t seed, int bits) {
  std::vector<int8_t> codes(count);
  for (int64_t i = 0; i < count; ++i) {
    codes[i] = static_cast<int8_t>(static_cast<int8_t>(SampleBits(seed, i)) >> (8 - bits));
  }
  return codes;
}

std::vector<uint16_t> AsBf16(const std::vector<float>& values) {
  std::vector<uint16_t> codes(values.size());
  for (size_t i = 0; i < values.size(); ++i) codes[i] = F32ToBF16(values[i]);
  return codes;
}

}  // namespace

void SelfTestMatMulF32(ThreadPool& pool, Isa isa, SelfTestLog& log) {
  Workspace workspace;
  for (const Shape& s : kShapes) {
    const std::vector<float> a = SampleFloats(s.m * s.k, 1), b = SampleFloats(s.k * s.n, 2);
    const std::vector<uint16_t> b_half = AsBf16(b);
    const FloatSource transposed = SourceF32(b.data(), s.n, s.k).Transposed();
    const struct {
      const char* name;
      FloatSource b;
    } forms[] = {{"f32", SourceF32(b.data(), s.k, s.n)},
                 {"f32 transposed", transposed},
                 {"f32 x bf16", SourceBF16(b_half.data(), s.k, s.n)}};
    for (const auto& form : forms) {
      std::vector<float> c[2] = {std::vector<float>(s.m * s.n), std::vector<float>(s.m * s.n)};
      for (int slot = 0; slot < 2; ++slot) {
        MatMulF32(pool, slot == 0 ? Isa::kReference : isa, workspace,
                  {SourceF32(a.data(), s.m, s.k), form.b, ResultF32(c[slot].data(), s.m, s.n), {}});
      }
      log.Compare(Named(form.name, s), c[0], c[1]);
    }
  }
}

void SelfTestMatMulI8(ThreadPool& pool, Isa isa, SelfTestLog& log) {
  for (const Shape& s : kShapes) {
    const std::vector<int8_t> a = SampleCodes(s.m * s.k, 1, 8), b = SampleCodes(s.k * s.n, 2, 8);
    const std::vector<float> row_scale = SampleFloats(s.m, 3), col_scale = SampleFloats(s.n, 4);
    std::vector<int32_t> exact[2] = {std::vector<int32_t>(s.m * s.n), std::vector<int32_t>(s.m * s.n)};
    std::vector<float> scaled[2] = {std::vector<float>(s.m * s.n), std::vector<float>(s.m * s.n)};
    for (int slot = 0; slot < 2; ++slot) {
      MatMulI8Args args;
      args.a = RowMajor(a.data(), s.m, s.k);
      args.b = RowMajor(b.data(), s.k, s.n);
      args.out.i32 = RowMajor(exact[slot].data(), s.m, s.n);
      slot == 0 ? MatMulI8Reference(args) : MatMulI8(pool, isa, args);
      args.out = {.f32 = RowMajor(scaled[slot].data(), s.m, s.n)};
      args.epilogue.row_scale.data = row_scale.data();
      args.epilogue.col_scale.data = col_scale.data();
      slot == 0 ? MatMulI8Reference(args) : MatMulI8(pool, isa, args);
    }
    log.Compare(Named("int8 sums", s), exact[0], exact[1]);
    log.Compare(Named("scaled int8", s), scaled[0], scaled[1]);
  }
}

void SelfTestMatMulU4(ThreadPool& pool, Isa isa, SelfTestLog& log) {
  for (const Shape& s : kShapes) {
    for (int64_t group : {int64_t{0}, int64_t{32}, int64_t{128}}) {
      const std::vector<int8_t> a = SampleCodes(s.m * s.k, 1, 8), b = SampleCodes(s.k * s.n, 2, 4);
      const int64_t groups = group == 0 ? 1 : (s.k + group - 1) / group;
      const std::vector<float> row_scale = SampleFloats(s.m, 3), col_scale = SampleFloats(s.n * groups, 4);
      std::vector<float> out[2] = {std::vector<float>(s.m * s.n), std::vector<float>(s.m * s.n)};
      for (int slot = 0; slot < 2; ++slot) {
        const Buffer data(static_cast<size_t>(PanelsU4Bytes(s.k, s.n, group)));
        MatMulU4Args args;
        args.a = RowMajor(a.data(), s.m, s.k);
        args.panels = PackPanelsU4(pool, slot == 0 ? Isa::kReference : isa, RowMajor(b.data(), s.k, s.n), group,
                                   static_cast<uint8_t*>(data.data()), nullptr);
        args.epilogue.row_scale.data = row_scale.data();
        args.epilogue.col_scale = {col_scale.data(), 1, s.n};
        args.out.f32 = RowMajor(out[slot].data(), s.m, s.n);
        slot == 0 ? MatMulU4Reference(args) : MatMulU4(pool, isa, args);
      }
      log.Compare(Named("int8 x int4", s) + " in groups of " + std::to_string(group), out[0], out[1]);
    }
  }
}

}  // namespace octavo::kernels
