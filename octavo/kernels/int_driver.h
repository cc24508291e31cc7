// How integer products are spread over threads and caches; shared by the int8 and int4 families and by ragged products,
// which are a list of plain ones. Threads split outputs only. Many rows: left operands (and right ones that are not
// packed yet) are packed by all workers, then they take rectangles of the outputs from a counter. Few rows: each worker
// packs the rows for itself and takes runs of panels, so that one wake-up of the pool does.
#pragma once

#include <cstdint>
#include <span>

#include "octavo/base/thread_pool.h"
#include "octavo/kernels/int_block.h"
#include "octavo/kernels/workspace.h"

namespace octavo::kernels {

// What the integer products keep in their workspace at the same time: right operand, left operand, panels rewritten by
// the workers.
enum IntSlot { kSlotRight, kSlotLeft, kSlotDecoded };

// The family's functions and the geometry of its strips.
struct IntFamily {
  int64_t strip_rows, unit_row_bytes;
  int64_t decoded;  // lines that a line of the panels becomes in a worker's scratch; 0: none (RectScratch)
  bool amx;         // whole strips of blocks (CutAmx)
  void (*pack_strips)(const MatrixView<const int8_t>& a, const StripsTarget& target, int64_t begin, int64_t end);
  void (*pack_panels)(const MatrixView<const int8_t>& b, const PanelsTarget& target, int64_t begin, int64_t end);
  void (*run)(const IntBlock& block, const IntRect& rect, uint8_t* scratch);

  // Bytes of one row of a strip.
  int64_t RowBytes(const IntBlock& block) const {
    if (amx) return block.tiles * CutAmx(block.units * decoded).blocks * CutAmx(block.units * decoded).row_bytes();
    return block.tiles * block.units * unit_row_bytes;
  }
  int64_t Scratch(const IntBlock& block, int64_t strips, int64_t panels) const {
    return amx ? RectScratchAmx(block, decoded, strips, panels) : RectScratch(block, decoded, strips, panels);
  }
};

// Up to these rows the vectors stream the panels faster than the tiles get them decoded.
inline constexpr int64_t kFewRowsAmx = 8;

// One product: `block` has the shapes, the epilogue, the output and the panels. If b has data, the panels are packed
// from it to `panels` first (both owned by the caller). Strips and row constants are made by the driver.
struct IntProduct {
  const IntFamily* family = nullptr;
  MatrixView<const int8_t> a = {};  // [rows, k], k > 0
  MatrixView<const int8_t> b = {};
  PanelsTarget panels = {};
  IntBlock block = {};
};

void RunIntProducts(ThreadPool& pool, Workspace& workspace, std::span<const IntProduct> products);

}  // namespace octavo::kernels
