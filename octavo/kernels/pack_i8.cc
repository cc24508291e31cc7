#include "octavo/kernels/pack_i8.h"

#include <algorithm>

#include "octavo/base/error.h"

namespace octavo::kernels {

int64_t PaddedColumns(int64_t n) { return (n + kPanelColumns - 1) / kPanelColumns * kPanelColumns; }

TileCut CutTiles(int64_t k, int64_t tile) {
  return {tile == 0 ? 1 : (k + tile - 1) / tile, tile == 0 || k < tile ? k : tile};
}

int64_t PanelsI8Sums(int64_t k, int64_t n, int64_t tile) { return CutTiles(k, tile).count * PaddedColumns(n); }

namespace {

// Bytes of the panels alone; the cross sums follow.
int64_t LinesI8(int64_t k, int64_t n, int64_t tile) {
  const TileCut cut = CutTiles(k, tile);
  return cut.count * cut.Units(kStepsI8) * kLineBytes * PaddedColumns(n) / kPanelColumns;
}

// Byte of step i of a tile and column c of a panel.
int64_t ByteOf(int64_t i, int64_t c) { return i / 2 * (2 * kPanelColumns) + c * 2 + i % 2; }

}  // namespace

int64_t PanelsI8Bytes(int64_t k, int64_t n, int64_t tile) {
  return LinesI8(k, n, tile) + PanelsI8Sums(k, n, tile) * static_cast<int64_t>(sizeof(int32_t));
}

const int32_t* CrossSums(const PanelsI8& panels) {
  return reinterpret_cast<const int32_t*>(panels.data + LinesI8(panels.k, panels.n, panels.tile));
}

int8_t PanelsI8Code(const PanelsI8& panels, int64_t k, int64_t n) {
  const TileCut cut = CutTiles(panels.k, panels.tile);
  const int64_t tile = n / kPanelColumns * cut.count + k / cut.length;
  return panels.data[tile * cut.Units(kStepsI8) * kLineBytes + ByteOf(k % cut.length, n % kPanelColumns)];
}

void PackPanelsI8Reference(const MatrixView<const int8_t>& b, const PanelsTarget& t, int64_t begin, int64_t end) {
  for (int64_t n = begin * kPanelColumns; n < end * kPanelColumns; ++n) {
    for (int64_t tile = 0; tile < t.tiles; ++tile) {
      int8_t* to = t.data + (n / kPanelColumns * t.tiles + tile) * t.units * kLineBytes;
      int32_t cross = 0, sum = 0;
      const int64_t k0 = tile * t.tile_length, length = std::min(t.tile_length, b.rows - k0);
      for (int64_t unit = 0; unit < t.units; ++unit) {
        int32_t quad[4];
        for (int64_t i = 0; i < 4; ++i) {
          const int64_t step = unit * 4 + i;
          quad[i] = n < b.cols && step < length ? b.at(k0 + step, n) : 0;
          to[ByteOf(step, n % kPanelColumns)] = static_cast<int8_t>(quad[i]);
          sum += quad[i];
        }
        cross += quad[0] * quad[2] + quad[1] * quad[3];
      }
      t.col_add[tile * t.padded + n] = -cross;
      if (t.col_sums != nullptr) t.col_sums[tile * t.padded + n] = sum;
    }
  }
}

PanelsTarget TargetOfPanels(int64_t k, int64_t n, int64_t tile, int8_t* data, int32_t* col_sums) {
  const TileCut cut = CutTiles(k, tile);
  return {data,
          reinterpret_cast<int32_t*>(data + LinesI8(k, n, tile)),
          col_sums,
          cut.count,
          cut.Units(kStepsI8),
          cut.length,
          PaddedColumns(n)};
}

PanelsI8 PackPanelsI8(ThreadPool& pool, Isa isa, MatrixView<const int8_t> b, int64_t tile, int8_t* data,
                      int32_t* col_sums) {
  if (tile < 0) ThrowUsage("PackPanelsI8: tile {}, expected 0 or more", tile);
  if (reinterpret_cast<uintptr_t>(data) % kLineBytes != 0) ThrowUsage("PackPanelsI8: data is not aligned to 64 bytes");
  const PanelsTarget target = TargetOfPanels(b.rows, b.cols, tile, data, col_sums);
  pool.ParallelFor(target.padded / kPanelColumns, 4, [&](int64_t begin, int64_t end) {
    if (isa >= Isa::kAvx2) {
      PackPanelsI8Avx2(b, target, begin, end);
    } else {
      PackPanelsI8Reference(b, target, begin, end);
    }
  });
  return {data, col_sums, b.rows, b.cols, tile};
}

}  // namespace octavo::kernels
