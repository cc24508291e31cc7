#include "octavo/kernels/pack_i8.h"

#include "octavo/base/error.h"

namespace octavo::kernels {
namespace {

int64_t PaddedColumns(int64_t n) { return (n + kPanelColumns - 1) / kPanelColumns * kPanelColumns; }

}  // namespace

TileCut CutTiles(int64_t k, int64_t tile) {
  const int64_t length = tile == 0 || k < tile ? k : tile;
  return {tile == 0 ? 1 : (k + tile - 1) / tile, length, (length + 1) / 2};
}

int64_t PanelsI8Bytes(int64_t k, int64_t n, int64_t tile) {
  const TileCut cut = CutTiles(k, tile);
  return cut.count * cut.steps * 2 * PaddedColumns(n);
}

int64_t PanelsI8Sums(int64_t k, int64_t n, int64_t tile) { return CutTiles(k, tile).count * PaddedColumns(n); }

int8_t PanelsI8Code(const PanelsI8& panels, int64_t k, int64_t n) {
  const TileCut cut = CutTiles(panels.k, panels.tile);
  const int64_t step = k / cut.length * cut.steps + k % cut.length / 2;
  const int64_t panel = n / kPanelColumns * (cut.count * cut.steps) + step;
  return panels.data[(panel * kPanelColumns + n % kPanelColumns) * 2 + k % cut.length % 2];
}

PanelsI8 PackPanelsI8(ThreadPool& pool, Isa /*isa*/, MatrixView<const int8_t> b, int64_t tile, int8_t* data,
                      int32_t* col_sums) {
  if (tile < 0) ThrowUsage("PackPanelsI8: tile {}, expected 0 or more", tile);
  const TileCut cut = CutTiles(b.rows, tile);
  const int64_t padded = PaddedColumns(b.cols);
  pool.ParallelFor(padded, kPanelColumns, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      int8_t* panel = data + n / kPanelColumns * (cut.count * cut.steps) * kPanelColumns * 2;
      for (int64_t t = 0; t < cut.count; ++t) {
        int32_t sum = 0;
        for (int64_t i = 0; i < cut.steps * 2; ++i) {
          const bool inside = n < b.cols && i < cut.Length(t, b.rows);
          const int8_t code = inside ? b.at(t * cut.length + i, n) : int8_t{0};
          panel[((t * cut.steps + i / 2) * kPanelColumns + n % kPanelColumns) * 2 + i % 2] = code;
          sum += code;
        }
        if (col_sums != nullptr) col_sums[t * padded + n] = sum;
      }
    }
  });
  return {data, col_sums, b.rows, b.cols, tile};
}

}  // namespace octavo::kernels
