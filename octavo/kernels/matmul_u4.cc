#include "octavo/kernels/matmul_u4.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <memory_resource>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/kernels/int_driver.h"
#include "octavo/kernels/kernel_list.h"
#include "octavo/kernels/matmul_i8.h"

namespace octavo::kernels {
namespace {

int64_t LinesPerGroup(const TileCut& cut) { return cut.Units(kStepsU4); }

// Byte and nibble of step i (inside its group's lines) and column c (inside its panel).
struct Nibble {
  int64_t byte;
  int shift;
};
Nibble Place(int64_t i, int64_t c) {
  const int64_t in_line = i % kStepsU4;
  return {i / kStepsU4 * kLineBytes + c / 8 * 32 + c % 8 * 4 + in_line % 4, in_line < 4 ? 0 : 4};
}

}  // namespace

int64_t PanelsU4Bytes(int64_t k, int64_t n, int64_t group) {
  const TileCut cut = CutTiles(k, group);
  return PaddedColumns(n) / kPanelColumns * cut.count * LinesPerGroup(cut) * kLineBytes;
}

int64_t PanelsU4Sums(int64_t k, int64_t n, int64_t group) { return CutTiles(k, group).count * PaddedColumns(n); }

int8_t PanelsU4Code(const PanelsU4& panels, int64_t k, int64_t n) {
  const TileCut cut = CutTiles(panels.k, panels.group);
  const int64_t lines = LinesPerGroup(cut);
  const uint8_t* group = panels.data + (n / kPanelColumns * cut.count + k / cut.length) * lines * kLineBytes;
  const Nibble place = Place(k % cut.length, n % kPanelColumns);
  return static_cast<int8_t>(((group[place.byte] >> place.shift) & 15) - 8);
}

bool PackPanelsU4Reference(const MatrixView<const int8_t>& b, const PanelsTarget& t, int64_t begin, int64_t end) {
  bool inside = true;
  for (int64_t n = begin * kPanelColumns; n < end * kPanelColumns; ++n) {
    for (int64_t g = 0; g < t.tiles; ++g) {
      uint8_t* lines = reinterpret_cast<uint8_t*>(t.data) + (n / kPanelColumns * t.tiles + g) * t.units * kLineBytes;
      int32_t sum = 0;
      const int64_t k0 = g * t.tile_length, length = std::min(t.tile_length, b.rows - k0);
      for (int64_t i = 0; i < t.units * kStepsU4; ++i) {
        const int code = n < b.cols && i < length ? b.at(k0 + i, n) : 0;
        inside = inside && code >= -8 && code <= 7;
        const Nibble place = Place(i, n % kPanelColumns);
        const uint8_t other = place.shift == 0 ? 0 : lines[place.byte];
        lines[place.byte] = static_cast<uint8_t>(other | ((code + 8) & 15) << place.shift);
        sum += code;
      }
      if (t.col_sums != nullptr) t.col_sums[g * t.padded + n] = sum;
    }
  }
  return inside;
}

PanelsU4 PackPanelsU4(ThreadPool& pool, Isa isa, MatrixView<const int8_t> b, int64_t group, uint8_t* data,
                      int32_t* col_sums) {
  if (group < 0) ThrowUsage("PackPanelsU4: group {}, expected 0 or more", group);
  const TileCut cut = CutTiles(b.rows, group);
  const PanelsTarget target{reinterpret_cast<int8_t*>(data),
                            nullptr,
                            col_sums,
                            cut.count,
                            cut.Units(kStepsU4),
                            cut.length,
                            PaddedColumns(b.cols)};
  std::atomic<bool> inside = true;
  pool.ParallelFor(target.padded / kPanelColumns, 4, [&](int64_t begin, int64_t end) {
    const auto pack = isa >= Isa::kAvx2 ? PackPanelsU4Avx2 : PackPanelsU4Reference;
    if (!pack(b, target, begin, end)) inside = false;
  });
  if (!inside) ThrowUsage("PackPanelsU4: a code outside -8 … 7 in [{}, {}]", b.rows, b.cols);
  return {data, col_sums, b.rows, b.cols, group};
}

void CheckMatMulU4(const MatMulU4Args& args) {
  if (args.a.cols != args.panels.k) {
    ThrowUsage("MatMulU4: lhs [{}, {}] contracts {}, rhs [{}, {}] wants {}", args.a.rows, args.a.cols, args.a.cols,
               args.panels.k, args.panels.n, args.panels.k);
  }
  const int64_t group = args.panels.group;
  CheckExactSteps("MatMulU4", args.epilogue, group == 0 ? args.a.cols : std::min(args.a.cols, group));
  if (args.epilogue.row_zero.data != nullptr && args.panels.col_sums == nullptr &&
      args.a.rows * args.a.cols * args.panels.n != 0) {
    ThrowUsage("MatMulU4: row zero points need panels packed with column sums");
  }
  CheckIntOutput("MatMulU4", args.out, args.epilogue, group != 0, args.a.rows, args.panels.n);
}

namespace {

std::string_view DeclineAmx(Isa isa, const MatMulU4Args& args) {
  if (isa < Isa::kAmx) return "another instruction set was chosen";
  if (args.a.cols == 0) return "K is 0: nothing to multiply";
  if (args.a.rows <= kFewRowsAmx) return "few rows: the vectors stream the weights faster";
  return "";
}

std::string_view DeclineAvx512(Isa isa, const MatMulU4Args& args) {
  if (isa < Isa::kAvx512) return "another instruction set was chosen";
  if (args.a.cols == 0) return "K is 0: nothing to multiply";
  return "";
}

std::string_view DeclineAvx2(Isa isa, const MatMulU4Args& args) {
  if (isa < Isa::kAvx2) return "another instruction set was chosen";
  if (args.a.cols == 0) return "K is 0: nothing to multiply";
  return "";
}

std::string_view DeclineNothing(Isa, const MatMulU4Args&) { return ""; }

constexpr IntFamily kFamilyAvx2{kStripRowsU4, 8, 0, false, PackStripsU4Avx2, nullptr, BlockU4Avx2};
constexpr IntFamily kFamilyAvx512{kStripRowsAvx512, 8, 2, false, PackStripsU4Avx512, nullptr, BlockU4Avx512};
constexpr IntFamily kFamilyAmx{kStripRowsAmx, 8, 2, true, PackStripsU4Amx, nullptr, BlockU4Amx};

IntProduct ProductOf(const IntFamily& family, const MatMulU4Args& args) {
  const TileCut cut = CutTiles(args.panels.k, args.panels.group);
  IntProduct product{.family = &family, .a = args.a};
  IntBlock& block = product.block;
  block.panels = args.panels.data;
  block.cols = args.panels.n;
  block.tiles = cut.count;
  block.units = cut.Units(kStepsU4);
  block.k = args.panels.k;
  block.tile_length = cut.length;
  block.col_sum = args.panels.col_sums;
  block.epilogue = args.epilogue;
  block.out = args.out;
  return product;
}

template <const IntFamily& kFamily>
void RunPacked(ThreadPool& pool, Isa, const MatMulU4Args& args) {
  const IntProduct product = ProductOf(kFamily, args);
  Workspace own;
  RunIntProducts(pool, args.workspace != nullptr ? *args.workspace : own, {&product, 1});
}

void RunReference(ThreadPool&, Isa, const MatMulU4Args& args) { MatMulU4Reference(args); }

constexpr KernelEntry<MatMulU4Args> kEntries[] = {
    {"int8 x int4 amx 32x32", DeclineAmx, RunPacked<kFamilyAmx>},
    {"int8 x int4 avx512 vnni 14x32", DeclineAvx512, RunPacked<kFamilyAvx512>},
    {"int8 x int4 avx2 6x16", DeclineAvx2, RunPacked<kFamilyAvx2>},
    {"int8 x int4 reference", DeclineNothing, RunReference},
};

}  // namespace

KernelChoice ChooseMatMulU4(Isa isa, const MatMulU4Args& args) { return ChooseFrom(kEntries, isa, args); }

void MatMulU4(ThreadPool& pool, Isa isa, const MatMulU4Args& args) {
  CheckMatMulU4(args);
  RunFrom(kEntries, pool, isa, args);
}

void MatMulU4(ThreadPool& pool, Isa isa, std::span<const MatMulU4Args> products) {
  const bool streamed = isa >= Isa::kAvx2 && std::ranges::all_of(products, [](const MatMulU4Args& args) {
                          return args.a.rows <= kFewRowsAmx && args.a.cols > 0;
                        });
  if (!streamed) {
    for (const MatMulU4Args& args : products) MatMulU4(pool, isa, args);
    return;
  }
  // A few products fit the stack: this runs for every projection of a served token.
  alignas(IntProduct) std::array<std::byte, 8 * sizeof(IntProduct)> memory;
  std::pmr::monotonic_buffer_resource here(memory.data(), memory.size());
  std::pmr::vector<IntProduct> list(&here);
  list.reserve(products.size());
  for (const MatMulU4Args& args : products) {
    CheckMatMulU4(args);
    list.push_back(ProductOf(isa >= Isa::kAvx512 ? kFamilyAvx512 : kFamilyAvx2, args));
  }
  Workspace own;
  RunIntProducts(pool, products.empty() || products[0].workspace == nullptr ? own : *products[0].workspace, list);
}

}  // namespace octavo::kernels
