// How quantizing is spread over threads, and which rectangle goes to which fast function. Whatever the order of the
// axes, the work is turned so that rows are contiguous.
#include <algorithm>
#include <atomic>
#include <bit>
#include <vector>

#include "octavo/kernels/quantize.h"
#include "octavo/kernels/quantize_check.h"

namespace octavo::kernels {
namespace {

// With a scale per column, blocks of up to this many values are read twice by one task, from the second cache; taller
// ones in two phases of whole rows by all workers, because short runs of many rows waste pages and prefetches.
constexpr int64_t kColumnChunk = 1024, kShortBlock = int64_t{256} << 10;
constexpr int64_t kTaskValues = 16384;

int64_t Ceil(int64_t value, int64_t by) { return (value + by - 1) / by; }

template <typename T>
MatrixView<T> Turned(const MatrixView<T>& view) {
  return view.Transposed();
}

// The same work with rows and columns exchanged.
QuantizeArgs Turned(const QuantizeArgs& args) {
  QuantizeArgs turned = args;
  turned.source = {Turned(args.source.f32), Turned(args.source.bf16)};
  std::swap(turned.block_rows, turned.block_cols);
  std::swap(turned.pre_row, turned.pre_col);
  turned.noise = Turned(args.noise);
  turned.scale = Turned(args.scale);
  turned.zero = Turned(args.zero);
  turned.codes = Turned(args.codes);
  return turned;
}

int64_t ColStride(const QuantizeArgs& args) {
  return args.source.is_bf16() ? args.source.bf16.col_stride : args.source.f32.col_stride;
}

// Whether the fast functions can take the work as it lies.
bool RowsContiguous(const QuantizeArgs& args) {
  return ColStride(args) == 1 &&
         (args.noise.data == nullptr || args.noise.col_stride == 0 || args.noise.col_stride == 1);
}

// The rectangle [r0, r1) x [c0, c1) without its scales.
QuantizeTile TileOf(const QuantizeArgs& args, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  QuantizeTile t;
  if (args.source.is_bf16()) {
    t.row_stride = args.source.bf16.row_stride;
    t.bf16 = args.source.bf16.data + r0 * t.row_stride + c0;
  } else {
    t.row_stride = args.source.f32.row_stride;
    t.f32 = args.source.f32.data + r0 * t.row_stride + c0;
  }
  t.rows = r1 - r0;
  t.cols = c1 - c0;
  if (args.pre_row != nullptr) t.pre_row = args.pre_row + r0;
  if (args.pre_col != nullptr) t.pre_col = args.pre_col + c0;
  if (args.noise.data != nullptr) {
    t.noise = &args.noise.at(r0, c0);
    t.noise_row_stride = args.noise.row_stride;
    t.noise_col_stride = args.noise.col_stride;
  }
  t.divide = args.spec.code_division == Division::kTrue;
  t.min_code = static_cast<float>(args.spec.min_code);
  t.max_code = static_cast<float>(args.spec.max_code);
  if (args.codes.data != nullptr) {
    t.codes = &args.codes.at(r0, c0);
    t.codes_row_stride = args.codes.row_stride;
    t.codes_col_stride = args.codes.col_stride;
  }
  return t;
}

// Runs task(i) for i < count, taken from a counter.
template <typename Task>
void ForEach(ThreadPool& pool, int64_t count, const Task& task) {
  std::atomic<int64_t> next = 0;
  const auto work = [&](int, int) {
    for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) task(i);
  };
  if (count == 1) return work(0, 1);
  pool.Run(work);
}

class Fast {
 public:
  Fast(const QuantizeArgs& args, QuantizeStep step)
      : args_(args), step_(step), bf16_(args.source.is_bf16()), rows_(args.source.rows()), cols_(args.source.cols()) {}

  void Run(ThreadPool& pool) const {
    if (rows_ == 0 || cols_ == 0) return;
    if (args_.block_cols == 1 && cols_ > 1) return Columns(pool);
    if (args_.block_rows == 1 && step_ == QuantizeStep::kBoth) return Rows(pool);
    Blocks(pool);
  }

 private:
  bool finds_scale() const { return step_ != QuantizeStep::kCodes; }
  bool makes_codes() const { return step_ != QuantizeStep::kScale; }

  float FromAbsMax(uint32_t bits) const { return ScaleFromAbsMax(args_.spec, bf16_, std::bit_cast<float>(bits)); }
  float Factor(float scale) const { return CodeFactor(args_.spec, bf16_, scale); }
  bool has_zero() const { return step_ == QuantizeStep::kCodes && args_.zero.data != nullptr; }

  // Blocks inside one row.
  void Rows(ThreadPool& pool) const {
    const int64_t run = std::clamp<int64_t>(kTaskValues / cols_, 1, 64);
    ForEach(pool, Ceil(rows_, run), [&](int64_t i) {
      const int64_t r0 = i * run, r1 = std::min(r0 + run, rows_);
      QuantizeRowBlocksAvx2(TileOf(args_, r0, r1, 0, cols_), args_.spec, args_.block_cols, &args_.scale.at(r0, 0),
                            args_.scale.row_stride, args_.scale.col_stride);
    });
  }

  // One scale per column and run of block_rows rows.
  void Columns(ThreadPool& pool) const {
    const int64_t runs = Ceil(rows_, args_.block_rows), height = std::min(args_.block_rows, rows_);
    const int64_t chunk = std::min(kColumnChunk, cols_), chunks = Ceil(cols_, chunk);
    if (height * chunk > kShortBlock || runs * chunks < pool.size()) {
      for (int64_t run = 0; run < runs; ++run) TallColumns(pool, run);
      return;
    }
    ForEach(pool, chunks * runs, [&](int64_t i) {
      const int64_t c0 = i % chunks * chunk, c1 = std::min(c0 + chunk, cols_), run = i / chunks;
      const int64_t r0 = run * args_.block_rows, r1 = std::min(r0 + args_.block_rows, rows_);
      bool tame = false;
      if (finds_scale()) {
        uint32_t best[kColumnChunk] = {};
        AbsMaxColumnsAvx2(TileOf(args_, r0, r1, c0, c1), best);
        for (int64_t c = c0; c < c1; ++c) args_.scale.at(run, c) = FromAbsMax(best[c - c0]);
        tame = IsTame(args_.spec, *std::max_element(best, best + (c1 - c0)));
      }
      if (!makes_codes()) return;
      float factor[kColumnChunk], zero[kColumnChunk];
      ColumnFactors(run, c0, c1, factor, zero);
      ColumnCodes(TileOf(args_, r0, r1, c0, c1), factor, zero, tame);
    });
  }

  // One run of many rows: maxima of whole rows, each worker its own, then merged; then the codes, last rows first
  // because they are still in cache.
  void TallColumns(ThreadPool& pool, int64_t run) const {
    const int64_t r0 = run * args_.block_rows, r1 = std::min(r0 + args_.block_rows, rows_);
    const int64_t piece = std::clamp<int64_t>(kTaskValues / cols_, 1, 64), pieces = Ceil(r1 - r0, piece);
    bool tame = false;
    if (finds_scale()) {
      std::vector<uint32_t> best(static_cast<size_t>(pool.size() * cols_));
      std::atomic<int64_t> next = 0;
      pool.Run([&](int worker, int) {
        uint32_t* mine = best.data() + worker * cols_;
        for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < pieces;) {
          AbsMaxColumnsAvx2(TileOf(args_, r0 + i * piece, std::min(r0 + (i + 1) * piece, r1), 0, cols_), mine);
        }
      });
      for (int64_t c = 0; c < cols_; ++c) {
        uint32_t bits = 0;
        for (int w = 0; w < pool.size(); ++w) bits = std::max(bits, best[static_cast<size_t>(w * cols_ + c)]);
        args_.scale.at(run, c) = FromAbsMax(bits);
      }
      tame = IsTame(args_.spec, *std::max_element(best.begin(), best.end()));
    }
    if (!makes_codes()) return;
    std::vector<float> factor(static_cast<size_t>(cols_)), zero(static_cast<size_t>(cols_));
    ColumnFactors(run, 0, cols_, factor.data(), zero.data());
    ForEach(pool, pieces, [&](int64_t i) {
      const int64_t at = r0 + (pieces - 1 - i) * piece;
      ColumnCodes(TileOf(args_, at, std::min(at + piece, r1), 0, cols_), factor.data(), zero.data(), tame);
    });
  }

  void ColumnFactors(int64_t run, int64_t c0, int64_t c1, float* factor, float* zero) const {
    for (int64_t c = c0; c < c1; ++c) {
      factor[c - c0] = Factor(args_.scale.at(run, c));
      zero[c - c0] = has_zero() ? static_cast<float>(args_.zero.at(run, c)) : 0.0f;
    }
  }

  void ColumnCodes(QuantizeTile tile, const float* factor, const float* zero, bool tame) const {
    tile.per_column = true;
    tile.tame = tame;
    tile.factor = factor;
    if (has_zero()) tile.zero = zero;
    QuantizeTileAvx2(tile);
  }

  // Any other blocks: first all scales, then all codes, both cut into short pieces of rows.
  void Blocks(ThreadPool& pool) const {
    const int64_t across = args_.scale.cols, down = args_.scale.rows;
    const int64_t width = std::min(args_.block_cols, cols_), height = std::min(args_.block_rows, rows_);
    const int64_t run = std::clamp<int64_t>(kTaskValues / width, 1, height), runs = Ceil(height, run);
    const auto piece = [&](int64_t i, int64_t& br, int64_t& bc) {
      bc = i % across;
      br = i / across / runs;
      const int64_t r0 = std::min(br * args_.block_rows + i / across % runs * run, rows_);
      const int64_t r1 = std::min({r0 + run, (br + 1) * args_.block_rows, rows_});
      const int64_t c0 = bc * args_.block_cols;
      return TileOf(args_, std::min(r0, r1), r1, c0, std::min(c0 + args_.block_cols, cols_));
    };
    if (finds_scale()) {
      std::vector<std::atomic<uint32_t>> best(static_cast<size_t>(down * across));
      ForEach(pool, down * across * runs, [&](int64_t i) {
        int64_t br, bc;
        const uint32_t bits = AbsMaxTileAvx2(piece(i, br, bc));
        std::atomic<uint32_t>& to = best[static_cast<size_t>(br * across + bc)];
        for (uint32_t old = to.load(); bits > old && !to.compare_exchange_weak(old, bits);) {
        }
      });
      for (int64_t b = 0; b < down * across; ++b) {
        args_.scale.at(b / across, b % across) = FromAbsMax(best[static_cast<size_t>(b)].load());
      }
    }
    if (!makes_codes()) return;
    ForEach(pool, down * across * runs, [&](int64_t i) {
      int64_t br, bc;
      QuantizeTile tile = piece(i, br, bc);
      const float factor = Factor(args_.scale.at(br, bc));
      const float zero = has_zero() ? static_cast<float>(args_.zero.at(br, bc)) : 0.0f;
      tile.factor = &factor;
      if (has_zero()) tile.zero = &zero;
      QuantizeTileAvx2(tile);
    });
  }

  const QuantizeArgs& args_;
  QuantizeStep step_;
  bool bf16_;
  int64_t rows_, cols_;
};

// False when only the reference can do it.
bool RunFast(ThreadPool& pool, Isa isa, const QuantizeArgs& args, QuantizeStep step) {
  if (isa < Isa::kAvx2) return false;
  if (RowsContiguous(args)) {
    Fast(args, step).Run(pool);
    return true;
  }
  const QuantizeArgs turned = Turned(args);
  if (!RowsContiguous(turned)) return false;
  Fast(turned, step).Run(pool);
  return true;
}

}  // namespace

void Quantize(ThreadPool& pool, Isa isa, const QuantizeArgs& args) {
  CheckQuantize(args, QuantizeStep::kBoth);
  if (!RunFast(pool, isa, args, QuantizeStep::kBoth)) QuantizeReference(args);
}

void AbsMaxScale(ThreadPool& pool, Isa isa, const QuantizeArgs& args) {
  CheckQuantize(args, QuantizeStep::kScale);
  if (!RunFast(pool, isa, args, QuantizeStep::kScale)) AbsMaxScaleReference(args);
}

void QuantizeWithScale(ThreadPool& pool, Isa isa, const QuantizeArgs& args) {
  CheckQuantize(args, QuantizeStep::kCodes);
  if (!RunFast(pool, isa, args, QuantizeStep::kCodes)) QuantizeWithScaleReference(args);
}

namespace {

DequantizeArgs Turned(const DequantizeArgs& args) {
  DequantizeArgs turned = args;
  turned.codes = Turned(args.codes);
  std::swap(turned.block_rows, turned.block_cols);
  turned.scale = Turned(args.scale);
  turned.zero = Turned(args.zero);
  turned.f32 = Turned(args.f32);
  turned.bf16 = Turned(args.bf16);
  return turned;
}

bool RowsContiguous(const DequantizeArgs& args) {
  return args.codes.col_stride == 1 && (args.f32.data != nullptr ? args.f32 : MatrixView<float>{}).col_stride == 1 &&
         (args.bf16.data == nullptr || args.bf16.col_stride == 1);
}

// One row of one row of blocks.
void DequantizeRow(const DequantizeArgs& args, int64_t r, float* scale, float* zero) {
  const int64_t br = r / args.block_rows, cols = args.codes.cols;
  const bool per_column = args.block_cols == 1;
  for (int64_t b = 0; b < args.scale.cols; ++b) {
    scale[b] = args.scale.at(br, b);
    if (args.zero.data != nullptr) zero[b] = static_cast<float>(args.zero.at(br, b));
  }
  const int64_t width = per_column ? cols : args.block_cols;
  for (int64_t c = 0, b = 0; c < cols; c += width, ++b) {
    DequantizeTile tile;
    tile.codes = args.codes.data + r * args.codes.row_stride + c;
    tile.rows = 1;
    tile.cols = std::min(width, cols - c);
    tile.scale = scale + b;
    if (args.zero.data != nullptr) tile.zero = zero + b;
    tile.per_column = per_column;
    if (args.f32.data != nullptr) tile.f32 = args.f32.data + r * args.f32.row_stride + c;
    if (args.bf16.data != nullptr) tile.bf16 = args.bf16.data + r * args.bf16.row_stride + c;
    DequantizeTileAvx2(tile);
  }
}

}  // namespace

void Dequantize(ThreadPool& pool, Isa isa, const DequantizeArgs& args) {
  CheckDequantize(args);
  const bool straight = RowsContiguous(args);
  if (isa < Isa::kAvx2 || (!straight && !RowsContiguous(Turned(args)))) return DequantizeReference(args);
  const DequantizeArgs& turned = straight ? args : Turned(args);
  if (turned.codes.rows == 0 || turned.codes.cols == 0) return;
  const int64_t grain = std::clamp<int64_t>(kTaskValues / turned.codes.cols, 1, 64);
  pool.ParallelFor(turned.codes.rows, grain, [&](int64_t begin, int64_t end) {
    std::vector<float> values(static_cast<size_t>(2 * turned.scale.cols));
    for (int64_t r = begin; r < end; ++r) {
      DequantizeRow(turned, r, values.data(), values.data() + turned.scale.cols);
    }
  });
}

}  // namespace octavo::kernels
