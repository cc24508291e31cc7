#include "octavo/kernels/int_driver.h"

#include <algorithm>
#include <atomic>

namespace octavo::kernels {
namespace {

// Rows up to which every worker packs the left operand for itself.
constexpr int64_t kNarrowRows = 16;
// Packed left operand kept at a time, and the part of the panels that a rectangle streams again and again: sized for
// a share of the third and of the second cache.
constexpr int64_t kStripsBytes = int64_t{8} << 20;
constexpr int64_t kPanelsBytes = int64_t{192} << 10;

int64_t Ceil(int64_t value, int64_t by) { return (value + by - 1) / by; }

// Where the packed rows and their constants live.
struct Packed {
  uint8_t* strips;
  int32_t *row_add, *row_sum;
};

Packed Carve(Carver& carver, const IntBlock& block, int64_t rows) {
  Packed packed{};
  packed.strips = carver.Take<uint8_t>(rows * block.tiles * block.units * kUnitRowBytes);
  packed.row_add = carver.Take<int32_t>(rows * block.tiles);
  if (block.epilogue.col_zero.data != nullptr) packed.row_sum = carver.Take<int32_t>(rows * block.tiles);
  return packed;
}

StripsTarget TargetOf(const IntBlock& block, const Packed& packed) {
  return {packed.strips, packed.row_add, packed.row_sum, block.tiles, block.units, block.tile_length};
}

void Attach(IntBlock& block, const Packed& packed) {
  block.strips = packed.strips;
  block.row_add = packed.row_add;
  block.row_sum = packed.row_sum;
}

void RunNarrow(ThreadPool& pool, Arena& arena, const IntFamily& family, const MatrixView<const int8_t>& a,
               IntBlock block) {
  Carver sizes(nullptr);
  Carve(sizes, block, a.rows);
  const int64_t each = static_cast<int64_t>(sizes.used());
  std::byte* memory = arena.Reserve(Arena::kLeft, sizes.used() * static_cast<size_t>(pool.size()));
  const int64_t strips = Ceil(a.rows, family.strip_rows), panels = Ceil(block.cols, kPanelColumns);
  // Long enough for the prefetchers, short enough to even out the workers.
  const int64_t run = std::clamp<int64_t>(panels / (pool.size() * 8), 1, 64);
  std::atomic<int64_t> next = 0;
  pool.Run([&](int worker, int) {
    int64_t begin = next.fetch_add(run, std::memory_order_relaxed);
    if (begin >= panels) return;
    Carver carver(memory + worker * each);
    const Packed packed = Carve(carver, block, a.rows);
    family.pack_strips(a, TargetOf(block, packed), 0, strips);
    IntBlock mine = block;
    Attach(mine, packed);
    for (; begin < panels; begin = next.fetch_add(run, std::memory_order_relaxed)) {
      for (int64_t panel = begin; panel < std::min(begin + run, panels); ++panel) {
        family.run(mine, {0, strips, panel, panel + 1});
      }
    }
  });
}

// One pass over rows that fit the arena: pack, then multiply.
void RunRows(ThreadPool& pool, const IntFamily& family, const MatrixView<const int8_t>& a, IntBlock block,
             const Packed& packed) {
  const int64_t strips = Ceil(a.rows, family.strip_rows), panels = Ceil(block.cols, kPanelColumns);
  constexpr int64_t kPackStrips = 4;
  std::atomic<int64_t> next_strip = 0;
  pool.Run([&](int, int) {
    for (int64_t s; (s = next_strip.fetch_add(kPackStrips, std::memory_order_relaxed)) < strips;) {
      family.pack_strips(a, TargetOf(block, packed), s, std::min(s + kPackStrips, strips));
    }
  });
  Attach(block, packed);
  const int64_t panel_run = std::clamp<int64_t>(kPanelsBytes / std::max<int64_t>(block.panel_bytes(), 1), 1, 16);
  const int64_t strip_run = std::clamp<int64_t>(strips / (4 * pool.size()), 4, 32);
  const int64_t columns = Ceil(panels, panel_run), tasks = columns * Ceil(strips, strip_run);
  std::atomic<int64_t> next = 0;
  pool.Run([&](int, int) {
    for (int64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < tasks;) {
      const int64_t s = task / columns * strip_run, p = task % columns * panel_run;
      family.run(block, {s, std::min(s + strip_run, strips), p, std::min(p + panel_run, panels)});
    }
  });
}

}  // namespace

void RunIntProduct(ThreadPool& pool, Arena& arena, const IntFamily& family, const MatrixView<const int8_t>& a,
                   IntBlock block) {
  if (a.rows == 0 || block.cols == 0) return;
  block.rows = a.rows;
  if (a.rows <= kNarrowRows) return RunNarrow(pool, arena, family, a, block);
  const int64_t row_bytes = std::max<int64_t>(block.tiles * block.units * kUnitRowBytes, 1);
  const int64_t fit = std::max(kStripsBytes / row_bytes, int64_t{64});
  const int64_t pass = std::min(a.rows, Ceil(Ceil(a.rows, Ceil(a.rows, fit)), family.strip_rows) * family.strip_rows);
  Carver sizes(nullptr);
  Carve(sizes, block, pass);
  Carver carver(arena.Reserve(Arena::kLeft, sizes.used()));
  const Packed packed = Carve(carver, block, pass);
  const int64_t first = block.first_row;
  for (int64_t row = 0; row < a.rows; row += pass) {
    block.rows = std::min(pass, a.rows - row);
    block.first_row = first + row;
    RunRows(pool, family, {a.data + row * a.row_stride, block.rows, a.cols, a.row_stride, a.col_stride}, block, packed);
  }
}

}  // namespace octavo::kernels
