#include "octavo/kernels/matmul_i8.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory_resource>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/kernels/carver.h"
#include "octavo/kernels/int_driver.h"
#include "octavo/kernels/kernel_list.h"
#include "octavo/kernels/matmul_i8_parts.h"

namespace octavo::kernels {

void CheckIntOutput(const char* who, const IntOutput& out, const ScaleEpilogue& e, bool tiled, int64_t rows,
                    int64_t cols) {
  const int given = (out.i32.data != nullptr) + (out.f32.data != nullptr) + (out.bf16.data != nullptr);
  if (given > 1) ThrowUsage("{}: {} outputs, expected one of i32, f32, bf16", who, given);
  if (given == 0 && rows * cols != 0) ThrowUsage("{}: no output, expected one of i32, f32, bf16", who);
  const auto check = [&](const auto& view) {
    if (view.data != nullptr && (view.rows != rows || view.cols != cols)) {
      ThrowUsage("{}: the output is [{}, {}], the product [{}, {}]", who, view.rows, view.cols, rows, cols);
    }
  };
  check(out.i32);
  check(out.f32);
  check(out.bf16);
  const bool scaled = e.row_scale.data != nullptr || e.col_scale.data != nullptr || e.bias.data != nullptr;
  if (out.i32.data != nullptr && (scaled || tiled)) {
    ThrowUsage("{}: an int32 output takes the bare sum, but scales, a bias or tiles are given", who);
  }
}

void CheckExactSteps(const char* who, const ScaleEpilogue& e, int64_t steps) {
  const int zeros = (e.row_zero.data != nullptr) + (e.col_zero.data != nullptr);
  const int64_t bound = (kMaxExactSteps + 1) >> zeros;
  if (steps >= bound) {
    throw Error(ErrorCode::kUsage,
                fmt::format("{}: {} steps of K in one int32 sum, exact below {}{}", who, steps, bound,
                            zeros > 0 ? " with zero points" : ""),
                "cut K into tiles");
  }
}

void CheckMatMulI8(const MatMulI8Args& args) {
  const bool packed = args.panels.data != nullptr;
  const int64_t k = packed ? args.panels.k : args.b.rows, n = packed ? args.panels.n : args.b.cols;
  if (args.tile < 0) ThrowUsage("MatMulI8: tile {}, expected 0 or more", args.tile);
  if (args.a.cols != k) {
    ThrowUsage("MatMulI8: lhs [{}, {}] contracts {}, rhs [{}, {}] wants {}", args.a.rows, args.a.cols, args.a.cols, k,
               n, k);
  }
  if (packed && args.panels.tile != args.tile) {
    ThrowUsage("MatMulI8: tile {}, but the panels are packed with tile {}", args.tile, args.panels.tile);
  }
  CheckExactSteps("MatMulI8", args.epilogue, args.tile == 0 ? k : std::min(k, args.tile));
  if (packed && args.epilogue.row_zero.data != nullptr && args.panels.col_sums == nullptr && args.a.rows * k * n != 0) {
    ThrowUsage("MatMulI8: row zero points need panels packed with column sums");
  }
  CheckIntOutput("MatMulI8", args.out, args.epilogue, args.tile != 0, args.a.rows, n);
}

namespace {

const IntFamily& FamilyI8(Isa isa, int64_t rows) {
  if (isa >= Isa::kAmx && rows > kFewRowsAmx) return kFamilyI8Amx;
  return isa >= Isa::kAvx512 ? kFamilyI8Avx512 : kFamilyI8Avx2;
}

// Bytes of the panels of a right operand that is used once, in the form of the family.
int64_t OncePanelsBytes(const IntFamily& family, const MatMulI8Args& args) {
  if (!family.amx) return PanelsI8Bytes(args.b.rows, args.b.cols, args.tile);
  const TileCut cut = CutTiles(args.b.rows, args.tile);
  return PaddedColumns(args.b.cols) / kPanelColumns * cut.count * CutAmx(cut.Units(kStepsI8)).tile_bytes();
}

}  // namespace

IntProduct ProductI8(Isa isa, const MatMulI8Args& args, std::byte* memory) {
  const bool packed = args.panels.data != nullptr, row_zero = args.epilogue.row_zero.data != nullptr;
  IntProduct product{.family = &FamilyI8(isa, args.a.rows), .a = args.a};
  PanelsI8 panels = args.panels;
  if (!packed) {
    const int64_t k = args.b.rows, n = args.b.cols;
    Carver carver(memory);
    int8_t* data = carver.Take<int8_t>(OncePanelsBytes(*product.family, args));
    int32_t* sums = row_zero ? carver.Take<int32_t>(PanelsI8Sums(k, n, args.tile)) : nullptr;
    product.b = args.b;
    product.panels = TargetOfPanels(k, n, args.tile, data, sums);
    if (product.family->amx) product.panels.col_add = nullptr;
    panels = {data, sums, k, n, args.tile};
  }
  const TileCut cut = CutTiles(panels.k, panels.tile);
  IntBlock& block = product.block;
  block.panels = reinterpret_cast<const uint8_t*>(panels.data);
  block.cols = panels.n;
  block.tiles = cut.count;
  block.units = cut.Units(kStepsI8);
  block.k = panels.k;
  block.tile_length = cut.length;
  block.ready = !packed && product.family->amx;
  if (isa == Isa::kAvx2) block.col_add = CrossSums(panels);
  block.col_sum = panels.col_sums;
  block.epilogue = args.epilogue;
  block.out = args.out;
  return product;
}

int64_t PanelsScratch(Isa isa, const MatMulI8Args& args) {
  if (args.panels.data != nullptr) return 0;
  Carver carver(nullptr);
  carver.Take<int8_t>(OncePanelsBytes(FamilyI8(isa, args.a.rows), args));
  if (args.epilogue.row_zero.data != nullptr) carver.Take<int32_t>(PanelsI8Sums(args.b.rows, args.b.cols, args.tile));
  return carver.used();
}

namespace {

std::string_view DeclineAmx(Isa isa, const MatMulI8Args& args) {
  if (isa < Isa::kAmx) return "another instruction set was chosen";
  if (args.a.cols == 0) return "K is 0: nothing to multiply";
  if (args.a.rows <= kFewRowsAmx) return "few rows: the vectors stream the weights faster";
  return "";
}

std::string_view DeclineAvx512(Isa isa, const MatMulI8Args& args) {
  if (isa < Isa::kAvx512) return "another instruction set was chosen";
  if (args.a.cols == 0) return "K is 0: nothing to multiply";
  return "";
}

std::string_view DeclineAvx2(Isa isa, const MatMulI8Args& args) {
  if (isa < Isa::kAvx2) return "another instruction set was chosen";
  if (args.a.cols == 0) return "K is 0: nothing to multiply";
  return "";
}

std::string_view DeclineNothing(Isa, const MatMulI8Args&) { return ""; }

void RunPacked(ThreadPool& pool, Isa isa, const MatMulI8Args& args) {
  Workspace own;
  Workspace& workspace = args.workspace != nullptr ? *args.workspace : own;
  const IntProduct product = ProductI8(isa, args, workspace.Get<std::byte>(kSlotRight, PanelsScratch(isa, args)));
  RunIntProducts(pool, workspace, {&product, 1});
}

void RunReference(ThreadPool&, Isa, const MatMulI8Args& args) { MatMulI8Reference(args); }

constexpr KernelEntry<MatMulI8Args> kEntries[] = {
    {"int8 amx 32x32", DeclineAmx, RunPacked},
    {"int8 avx512 vnni 14x32", DeclineAvx512, RunPacked},
    {"int8 avx2 4x16", DeclineAvx2, RunPacked},
    {"int8 reference", DeclineNothing, RunReference},
};

}  // namespace

KernelChoice ChooseMatMulI8(Isa isa, const MatMulI8Args& args) { return ChooseFrom(kEntries, isa, args); }

void MatMulI8(ThreadPool& pool, Isa isa, const MatMulI8Args& args) {
  CheckMatMulI8(args);
  RunFrom(kEntries, pool, isa, args);
}

void MatMulI8(ThreadPool& pool, Isa isa, std::span<const MatMulI8Args> products) {
  const bool streamed = isa >= Isa::kAvx2 && std::ranges::all_of(products, [](const MatMulI8Args& args) {
                          return args.panels.data != nullptr && args.a.rows <= kFewRowsAmx && args.a.cols > 0;
                        });
  if (!streamed) {
    for (const MatMulI8Args& args : products) MatMulI8(pool, isa, args);
    return;
  }
  // A few products fit the stack: this runs for every projection of a served token.
  alignas(IntProduct) std::array<std::byte, 8 * sizeof(IntProduct)> memory;
  std::pmr::monotonic_buffer_resource here(memory.data(), memory.size());
  std::pmr::vector<IntProduct> list(&here);
  list.reserve(products.size());
  for (const MatMulI8Args& args : products) {
    CheckMatMulI8(args);
    list.push_back(ProductI8(isa, args, nullptr));
  }
  Workspace own;
  RunIntProducts(pool, products.empty() || products[0].workspace == nullptr ? own : *products[0].workspace, list);
}

}  // namespace octavo::kernels
