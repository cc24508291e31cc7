#include "octavo/kernels/int_driver.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "octavo/kernels/carver.h"
#include "octavo/kernels/panel_runs.h"

namespace octavo::kernels {
namespace {

// Rows up to which every worker packs the left operand for itself; where VNNI takes panels as they are,
// kDirectRowsAvx512.
constexpr int64_t kNarrowRows = 16;
// Packed left operands kept at a time, and the part of the panels that a rectangle streams again and again: sized for
// a share of the third and of the second cache.
constexpr int64_t kStripsBytes = int64_t{8} << 20;
constexpr int64_t kPanelsBytes = int64_t{192} << 10;
constexpr int64_t kDecodedBytes = int64_t{448} << 10;
constexpr int64_t kAmxDecodedBytes = int64_t{512} << 10, kAmxPanels = 16, kAmxStrips = 32;
constexpr int64_t kPackStrips = 4, kPackPanels = 4;  // per packing task

int64_t Ceil(int64_t value, int64_t by) { return (value + by - 1) / by; }

// Where packed rows and their constants live.
struct Packed {
  uint8_t* strips = nullptr;
  int32_t *row_add = nullptr, *row_sum = nullptr;
};

Packed Carve(Carver& carver, const IntFamily& family, const IntBlock& block, int64_t rows) {
  Packed packed;
  if (family.amx) rows = Ceil(rows, kStripRowsAmx) * kStripRowsAmx;
  packed.strips = carver.Take<uint8_t>(rows * family.RowBytes(block));
  if (!family.amx) packed.row_add = carver.Take<int32_t>(rows * block.tiles);
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

// Rows for which a family rewrites panels before it multiplies them.
bool Decodes(const IntFamily& family, int64_t rows) {
  return family.amx || (family.decoded > 0 && rows > kDirectRowsAvx512);
}

// Products of the same few rows: each worker packs them once and takes runs of the panels of all products, which are
// numbered through.
void RunNarrow(ThreadPool& pool, Workspace& workspace, std::span<const IntProduct> products) {
  const IntProduct& first = products[0];
  const IntFamily& family = *first.family;
  IntBlock block = first.block;
  block.rows = first.a.rows;
  Carver sizes(nullptr);
  Carve(sizes, family, block, block.rows);
  const bool decodes = Decodes(family, block.rows);  // a pair of panels at a time
  const int64_t scratch_bytes = decodes ? family.Scratch(block, 2, 2) : 0;
  sizes.Take<uint8_t>(scratch_bytes);
  const int64_t each = sizes.used();
  std::byte* memory = workspace.Get<std::byte>(kSlotLeft, each * pool.size());
  const int64_t strips = Ceil(block.rows, family.strip_rows);
  int64_t panels = 0;
  for (const IntProduct& product : products) panels += Ceil(product.block.cols, kPanelColumns);
  PanelRuns runs(panels, block.panel_bytes(), decodes ? 2 : 1, pool.size());
  pool.Run([&](int worker, int workers) {
    Range range = workers == 1 ? Range{0, panels} : runs.First(worker);
    if (range.begin == range.end) return;
    Carver carver(memory + worker * each);
    const Packed packed = Carve(carver, family, block, block.rows);
    uint8_t* scratch = carver.Take<uint8_t>(scratch_bytes);
    family.pack_strips(first.a, TargetOf(block, packed), 0, strips);
    for (; range.begin < range.end; range = workers == 1 ? Range{0, 0} : runs.Take()) {
      int64_t before = 0;  // panels of the products before this one
      for (const IntProduct& product : products) {
        const int64_t own = Ceil(product.block.cols, kPanelColumns);
        const int64_t begin = std::max(range.begin - before, int64_t{0}), end = std::min(range.end - before, own);
        before += own;
        if (begin >= end) continue;
        IntBlock mine = product.block;
        mine.rows = block.rows;
        Attach(mine, packed);
        const int64_t step = decodes ? 2 : strips == 1 ? end - begin : 1;
        for (int64_t panel = begin; panel < end; panel += step) {
          family.run(mine, {0, strips, panel, std::min(panel + step, end)}, scratch);
        }
      }
    }
  });
}

// Whether all are products of the same few rows with panels that exist and are cut alike.
bool AreNarrow(std::span<const IntProduct> products) {
  const IntProduct& first = products[0];
  const bool direct = first.family->decoded > 0 && !Decodes(*first.family, first.a.rows);
  const int64_t rows = direct ? first.a.rows : kNarrowRows;
  return std::ranges::all_of(products, [&](const IntProduct& one) {
    return one.a.rows <= rows && one.b.data == nullptr && one.family == first.family && one.a.data == first.a.data &&
           one.a.rows == first.a.rows && one.a.cols == first.a.cols && one.a.row_stride == first.a.row_stride &&
           one.a.col_stride == first.a.col_stride && one.block.tiles == first.block.tiles &&
           one.block.units == first.block.units && one.block.tile_length == first.block.tile_length &&
           (one.block.epilogue.col_zero.data == nullptr) == (first.block.epilogue.col_zero.data == nullptr);
  });
}

// Some rows of a product, packed and multiplied together with the other pieces of a batch.
struct Piece {
  const IntProduct* product;
  MatrixView<const int8_t> a;
  IntBlock block;
  bool first;  // packs the panels
  int64_t strips, panels, strip_run, panel_run;

  int64_t PackTasks() const {
    return Ceil(strips, kPackStrips) + (first && product->b.data != nullptr ? Ceil(panels, kPackPanels) : 0);
  }
  int64_t Tasks() const { return Ceil(strips, strip_run) * Ceil(panels, panel_run); }
};

// AMX is so fast that decoding a panel must serve many rows: as many strips as there are, up to a share of the second
// cache, and few panels rather than few strips when there would be too few rectangles.
void CutAmxPiece(Piece& piece, int64_t threads, size_t products) {
  const int64_t one = piece.product->family->Scratch(piece.block, kAmxStrips, 2) / 2;
  const int64_t tasks = products >= static_cast<size_t>(4 * threads) ? 1 : 4 * threads;
  if (ByPairsAmx(piece.block, piece.strips)) {
    piece.panel_run = Ceil(Ceil(piece.panels, tasks), 2) * 2;
    piece.strip_run = piece.strips;
    return;
  }
  piece.panel_run = std::clamp<int64_t>(kAmxDecodedBytes / std::max<int64_t>(one, 1), 2, kAmxPanels) / 2 * 2;
  const int64_t down = Ceil(piece.strips, kAmxStrips);
  while (piece.panel_run > 4 && Ceil(piece.panels, piece.panel_run) * down < tasks) piece.panel_run -= 2;
  const int64_t cuts = std::max(down, Ceil(tasks, Ceil(piece.panels, piece.panel_run)));
  piece.strip_run = std::max<int64_t>(Ceil(Ceil(piece.strips, cuts), 2) * 2, 4);
}

// The size of a rectangle.
void CutPiece(Piece& piece, int64_t threads, size_t products) {
  const IntFamily& family = *piece.product->family;
  if (family.amx) return CutAmxPiece(piece, threads, products);
  if (family.decoded == 0) {
    piece.panel_run = std::clamp<int64_t>(kPanelsBytes / piece.block.panel_bytes(), 1, 16);
    piece.strip_run = std::clamp<int64_t>(piece.strips / (4 * threads), 4, 32);
    return;
  }
  if (ByPairs(piece.block, family.decoded, piece.strips)) {
    // Long runs of panels, so that fetching ahead pays; many products share the workers themselves.
    const int64_t cuts = products >= static_cast<size_t>(4 * threads) ? 1 : 4 * threads;
    piece.panel_run = Ceil(Ceil(piece.panels, cuts), 2) * 2;
    piece.strip_run = piece.strips;
    return;
  }
  // Pairs of panels; enough strips to pay for decoding, few enough to share out.
  const int64_t one = RectScratch(piece.block, family.decoded, piece.strips, 1);
  piece.panel_run = std::clamp<int64_t>(kDecodedBytes / one, 2, 16) / 2 * 2;
  const int64_t across = Ceil(piece.panels, piece.panel_run);
  const int64_t cuts = std::max<int64_t>(1, Ceil(6 * threads, across));
  piece.strip_run = std::clamp<int64_t>(Ceil(piece.strips, cuts), std::min<int64_t>(piece.strips, 6), 48);
}

// Piece and task inside it, for a task number of the batch; `ends` are running totals.
struct Place {
  size_t piece;
  int64_t task;
};
Place Find(const std::vector<int64_t>& ends, int64_t task) {
  const size_t piece = static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), task) - ends.begin());
  return {piece, piece == 0 ? task : task - ends[piece - 1]};
}

// Runs work(piece, task, worker) for every task of a batch, taken from a counter.
template <typename Count, typename Work>
void ForTasks(ThreadPool& pool, const std::vector<Piece>& batch, const Count& count, const Work& work) {
  std::vector<int64_t> ends;
  int64_t total = 0;
  for (const Piece& piece : batch) ends.push_back(total += count(piece));
  std::atomic<int64_t> next = 0;
  pool.Run([&](int worker, int) {
    for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < total;) {
      const Place place = Find(ends, i);
      work(batch[place.piece], place.task, worker);
    }
  });
}

void RunBatch(ThreadPool& pool, Workspace& workspace, std::vector<Piece>& batch) {
  Carver sizes(nullptr);
  int64_t scratch_bytes = 0;
  for (const Piece& piece : batch) {
    const IntFamily& family = *piece.product->family;
    Carve(sizes, family, piece.block, piece.a.rows);
    scratch_bytes = std::max(scratch_bytes, family.Scratch(piece.block, piece.strip_run, piece.panel_run));
  }
  scratch_bytes = Ceil(scratch_bytes, kLineBytes) * kLineBytes;
  auto* scratch = workspace.Get<uint8_t>(kSlotDecoded, scratch_bytes * pool.size());
  Carver carver(workspace.Get<std::byte>(kSlotLeft, sizes.used()));
  std::vector<Packed> packed;
  for (Piece& piece : batch) {
    packed.push_back(Carve(carver, *piece.product->family, piece.block, piece.a.rows));
    Attach(piece.block, packed.back());
  }
  ForTasks(
      pool, batch, [](const Piece& piece) { return piece.PackTasks(); },
      [&](const Piece& piece, int64_t task, int) {
        const IntFamily& family = *piece.product->family;
        const int64_t left = Ceil(piece.strips, kPackStrips);
        if (task < left) {
          const int64_t begin = task * kPackStrips;
          family.pack_strips(piece.a, TargetOf(piece.block, packed[static_cast<size_t>(&piece - batch.data())]), begin,
                             std::min(begin + kPackStrips, piece.strips));
        } else {
          const int64_t begin = (task - left) * kPackPanels;
          family.pack_panels(piece.product->b, piece.product->panels, begin,
                             std::min(begin + kPackPanels, piece.panels));
        }
      });
  ForTasks(
      pool, batch, [](const Piece& piece) { return piece.Tasks(); },
      [&](const Piece& piece, int64_t task, int worker) {
        const int64_t across = Ceil(piece.panels, piece.panel_run);
        const int64_t s = task / across * piece.strip_run, p = task % across * piece.panel_run;
        piece.product->family->run(
            piece.block,
            {s, std::min(s + piece.strip_run, piece.strips), p, std::min(p + piece.panel_run, piece.panels)},
            scratch + worker * scratch_bytes);
      });
  batch.clear();
}

}  // namespace

void RunIntProducts(ThreadPool& pool, Workspace& workspace, std::span<const IntProduct> products) {
  if (!products.empty() && AreNarrow(products)) {
    if (products[0].a.rows > 0) RunNarrow(pool, workspace, products);
    return;
  }
  std::vector<Piece> batch;
  int64_t bytes = 0;
  for (const IntProduct& product : products) {
    const IntBlock& block = product.block;
    const IntFamily& family = *product.family;
    const int64_t rows = product.a.rows, row_bytes = family.RowBytes(block);
    if (rows == 0 || block.cols == 0) continue;
    // Equal passes of whole strips that fit the budget.
    const int64_t passes = Ceil(rows, std::max(kStripsBytes / row_bytes, int64_t{64}));
    const int64_t pass = Ceil(Ceil(rows, passes), family.strip_rows) * family.strip_rows;
    for (int64_t row = 0; row < rows; row += pass) {
      const int64_t count = std::min(pass, rows - row);
      if (!batch.empty() && bytes + count * row_bytes > kStripsBytes) {
        RunBatch(pool, workspace, batch);
        bytes = 0;
      }
      Piece piece{&product,
                  {product.a.data + row * product.a.row_stride, count, product.a.cols, product.a.row_stride,
                   product.a.col_stride},
                  block,
                  row == 0,
                  Ceil(count, family.strip_rows),
                  Ceil(block.cols, kPanelColumns),
                  0,
                  0};
      piece.block.rows = count;
      piece.block.first_row += row;
      CutPiece(piece, pool.size(), products.size());
      batch.push_back(piece);
      bytes += count * row_bytes;
    }
  }
  if (!batch.empty()) RunBatch(pool, workspace, batch);
}

}  // namespace octavo::kernels
