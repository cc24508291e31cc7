// The blocked driver of the F family. A product becomes a list of steps, each one block of B (256 x kBlockCols, shared
// by all threads) times a chunk of rows of A. A step has two phases, whose jobs the threads take from counters: pack,
// then multiply. Panels are double-buffered, so a thread that runs out of work packs for the next step while others
// still multiply. Threads share outputs, never a sum.
#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "octavo/kernels/matmul_f32_impl.h"
#include "octavo/kernels/matmul_f32_tile.h"
#include "octavo/kernels/weight_only.h"
#include "octavo/kernels/weight_only_isa.h"

namespace octavo::kernels {
namespace {

using internal::kColsOfTile;

constexpr int64_t kBlockCols = 2048;    // B: 2 MiB per block, two of them stay in the last cache
constexpr int64_t kPackCols = 128;      // columns of one packing job
constexpr int64_t kPartialRows = 2048;  // rows of partial sums kept outside C

// What depends on the instruction set. The numbers of rows are multiples of the register tile's.
struct Geometry {
  int64_t tile_rows;   // of a register tile
  int64_t chunk_rows;  // A: 1.5 MiB per chunk
  int64_t job_rows;    // of one job: their part of A stays in the second cache
  int64_t pack_rows;   // of one packing job
  int64_t least_cols;  // of one job
  void (*pack_rows_of)(const FloatSource& a, int64_t row, int64_t rows, int64_t k0, int64_t depth, float* out);
  void (*decode_cols)(const PackedView& view, int64_t k0, int64_t depth, int64_t col, int64_t cols, float* out,
                      int64_t panel_stride);
  void (*run)(const internal::LeafJob& job);
};
constexpr Geometry kAvx2{6, 1536, 192, 96, 64, internal::PackRowsAvx2, internal::DecodeColsAvx2, internal::RunLeafAvx2};
constexpr Geometry kAvx512{
    14, 14 * 110, 14 * 20, 14 * 7, 64, internal::PackRowsAvx512, internal::DecodeColsAvx512, internal::RunLeafAvx512};

enum Slot { kSlotA, kSlotB, kSlotPartial, kSlotStates };

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t RoundUp(int64_t a, int64_t b) { return CeilDiv(a, b) * b; }

// One product, with C's columns made contiguous where a transpose does it.
struct Problem {
  FloatSource a, b;
  const PackedView* packed;  // instead of b
  FloatResult c;
  EpilogueF32 epilogue;
  int64_t m = 0, n = 0, k = 0;
  bool direct = false;  // partial sums live in C
  bool plain = false;   // nothing to do after the last leaf

  // Packed weights that are f32 panels already are multiplied where they are.
  bool PanelsInPlace() const { return packed != nullptr && packed->packing == Packing::kF32 && !packed->has_scales; }
};

struct Step {
  int problem;
  int64_t col, cols, k0, depth, row, rows;
  bool pack_b;
  int b_buffer;
  int64_t partial_row;  // first row of the partial sums
  int64_t row_tiles, tile_rows, col_tiles, tile_cols;
  int64_t first_tile;  // the number of its first tile: the steps of the same rows and columns share them
};

struct alignas(64) State {
  std::atomic<int64_t> pack_next{0}, pack_done{0}, next{0}, done{0};
};

// Waits for another thread: it is at most one job away.
void WaitFor(const std::atomic<int64_t>& counter, int64_t value) {
  for (int spins = 0; counter.load(std::memory_order_acquire) < value; ++spins) {
    if (spins < 2000) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    } else {
      std::this_thread::yield();  // more threads than cores
    }
  }
}

Problem MakeProblem(const MatMulF32Args& args) {
  Problem p{args.a, args.b, args.packed_b == nullptr ? nullptr : &args.packed_b->view(), args.c, args.epilogue};
  const bool has_vectors = args.epilogue.row_scale.data != nullptr || args.epilogue.col_scale.data != nullptr ||
                           args.epilogue.bias.data != nullptr;
  // Column-major C: compute its transpose. The products commute and the order of the sum is the same.
  if (p.c.col_stride != 1 && p.c.row_stride == 1 && !has_vectors && p.packed == nullptr) {
    std::swap(p.a, p.b);
    p.a = p.a.Transposed(), p.b = p.b.Transposed(), p.c = p.c.Transposed();
  }
  p.m = p.c.rows, p.n = p.c.cols, p.k = p.a.cols;
  const bool contiguous_f32 = p.c.stored == Stored::kF32 && p.c.col_stride == 1;
  p.direct = contiguous_f32 && !p.epilogue.accumulate;
  p.plain = p.direct && !has_vectors;
  return p;
}

class Blocked {
 public:
  Blocked(Workspace& workspace, const Geometry& geometry, std::span<const MatMulF32Args> many, int threads)
      : geometry_(geometry), threads_(threads) {
    for (const MatMulF32Args& args : many) problems_.push_back(MakeProblem(args));
    int64_t a_floats = 0, b_floats = 0, partial_floats = 0;
    for (size_t i = 0; i < problems_.size(); ++i) AddSteps(static_cast<int>(i), partial_floats);
    for (const Step& step : steps_) {
      a_floats = std::max(a_floats, RoundUp(step.rows, geometry_.tile_rows) * step.depth);
      b_floats = std::max(b_floats, RoundUp(step.cols, kColsOfTile) * step.depth);
    }
    // A page between the two buffers keeps them off the same cache sets.
    a_stride_ = RoundUp(a_floats, 16) + 1024;
    b_stride_ = RoundUp(b_floats, 16) + 1024;
    a_ = workspace.Get<float>(kSlotA, 2 * a_stride_);
    b_ = workspace.Get<float>(kSlotB, 2 * b_stride_);
    partial_ = partial_floats == 0 ? nullptr : workspace.Get<float>(kSlotPartial, partial_floats);
    states_ = std::make_unique<State[]>(steps_.size());
    leaves_ = std::make_unique<std::atomic<int64_t>[]>(static_cast<size_t>(tiles_));
  }

  // One thread's part: takes jobs until all steps are done.
  void Work() {
    for (size_t s = 0; s < steps_.size(); ++s) {
      const Step& step = steps_[s];
      State& state = states_[s];
      if (s >= 2) WaitFor(states_[s - 2].done, Tiles(steps_[s - 2]));
      const int64_t packs = PackJobs(step);
      for (int64_t job; (job = state.pack_next.fetch_add(1, std::memory_order_relaxed)) < packs;) {
        Pack(s, job);
        state.pack_done.fetch_add(1, std::memory_order_release);
      }
      WaitFor(state.pack_done, packs);
      // Partial sums outside C are reused by the next block: nobody may still read the last one's.
      if (s >= 1 && step.k0 == 0 && !problems_[static_cast<size_t>(step.problem)].direct) {
        WaitFor(states_[s - 1].done, Tiles(steps_[s - 1]));
      }
      const int64_t tiles = Tiles(step);
      for (int64_t job; (job = state.next.fetch_add(1, std::memory_order_relaxed)) < tiles;) {
        // Leaves are added ascending: the tile's earlier leaves must be in place, whoever computes them.
        std::atomic<int64_t>& leaves = leaves_[static_cast<size_t>(step.first_tile + job)];
        WaitFor(leaves, step.k0 / kLeaf);
        Multiply(s, job);
        leaves.store(step.k0 / kLeaf + 1, std::memory_order_release);
        state.done.fetch_add(1, std::memory_order_release);
      }
    }
  }

 private:
  int64_t RowPacks(const Step& step) const { return CeilDiv(step.rows, geometry_.pack_rows); }
  int64_t PackJobs(const Step& step) const {
    return RowPacks(step) + (step.pack_b ? CeilDiv(step.cols, kPackCols) : 0);
  }
  static int64_t Tiles(const Step& step) { return step.row_tiles * step.col_tiles; }

  void AddSteps(int index, int64_t& partial_floats) {
    const Problem& p = problems_[static_cast<size_t>(index)];
    const int64_t outer_rows = p.direct || p.k <= kLeaf ? p.m : std::min(p.m, kPartialRows);
    if (!p.direct && p.k > kLeaf) {
      partial_floats = std::max(partial_floats, outer_rows * std::min(RoundUp(p.n, kColsOfTile), kBlockCols));
    }
    for (int64_t outer = 0; outer < p.m; outer += outer_rows) {
      const int64_t outer_end = std::min(outer + outer_rows, p.m);
      for (int64_t col = 0; col < p.n; col += kBlockCols) {
        const int64_t first_tile = tiles_;
        for (int64_t k0 = 0; k0 < p.k; k0 += kLeaf) {
          b_buffer_ ^= 1;
          tiles_ = first_tile;
          for (int64_t row = outer; row < outer_end; row += geometry_.chunk_rows) {
            Step step{};
            step.problem = index;
            step.col = col, step.cols = std::min(kBlockCols, p.n - col);
            step.k0 = k0, step.depth = std::min(kLeaf, p.k - k0);
            step.row = row, step.rows = std::min(geometry_.chunk_rows, outer_end - row);
            step.pack_b = row == outer && !p.PanelsInPlace();
            step.b_buffer = b_buffer_;
            step.partial_row = outer;
            Cut(step);
            step.first_tile = tiles_;
            tiles_ += Tiles(step);
            steps_.push_back(step);
          }
        }
      }
    }
  }

  // Cuts a step into jobs: blocks of rows that fit the second cache, and of columns when that gives too few to share.
  void Cut(Step& step) const {
    step.row_tiles = CeilDiv(step.rows, geometry_.job_rows);
    step.tile_rows = RoundUp(CeilDiv(step.rows, step.row_tiles), geometry_.tile_rows);
    step.row_tiles = CeilDiv(step.rows, step.tile_rows);
    const int64_t wanted = threads_ == 1 ? 1 : 6 * threads_;
    const int64_t most = CeilDiv(step.cols, geometry_.least_cols);
    step.col_tiles = std::clamp<int64_t>(CeilDiv(wanted, step.row_tiles), 1, most);
    step.tile_cols = RoundUp(CeilDiv(step.cols, step.col_tiles), 2 * kColsOfTile);
    step.col_tiles = CeilDiv(step.cols, step.tile_cols);
  }

  void Pack(size_t s, int64_t job) {
    const Step& step = steps_[s];
    const Problem& p = problems_[static_cast<size_t>(step.problem)];
    if (job < RowPacks(step)) {
      const int64_t row = job * geometry_.pack_rows;
      geometry_.pack_rows_of(p.a, step.row + row, std::min(geometry_.pack_rows, step.rows - row), step.k0, step.depth,
                             a_ + (s % 2) * a_stride_ + row * step.depth);
      return;
    }
    const int64_t col = (job - RowPacks(step)) * kPackCols, cols = std::min(kPackCols, step.cols - col);
    float* out = b_ + step.b_buffer * b_stride_ + col * step.depth;
    if (p.packed == nullptr) {
      internal::PackColsAvx2(p.b, step.k0, step.depth, step.col + col, cols, out, kColsOfTile * step.depth);
      return;
    }
    geometry_.decode_cols(*p.packed, step.k0, step.depth, step.col + col, cols, out, kColsOfTile * step.depth);
  }

  void Multiply(size_t s, int64_t tile) {
    const Step& step = steps_[s];
    const Problem& p = problems_[static_cast<size_t>(step.problem)];
    const int64_t row = tile / step.col_tiles * step.tile_rows, col = tile % step.col_tiles * step.tile_cols;
    internal::LeafJob job;
    job.a = a_ + (s % 2) * a_stride_ + row * step.depth;
    if (p.PanelsInPlace()) {
      const auto* panels = reinterpret_cast<const float*>(p.packed->codes);
      job.b = panels + (step.col + col) * p.k + step.k0 * kColsOfTile;
      job.b_panel_stride = kColsOfTile * p.k;
    } else {
      job.b = b_ + step.b_buffer * b_stride_ + col * step.depth;
      job.b_panel_stride = kColsOfTile * step.depth;
    }
    job.rows = std::min(step.tile_rows, step.rows - row);
    job.cols = std::min(step.tile_cols, step.cols - col);
    job.depth = step.depth;
    job.first = step.k0 == 0;
    job.last = step.k0 + step.depth == p.k;
    job.plain = p.plain;
    const int64_t c_row = step.row + row, c_col = step.col + col;
    if (p.direct) {
      job.partial = static_cast<float*>(p.c.data) + c_row * p.c.row_stride + c_col;
      job.partial_stride = p.c.row_stride;
    } else if (partial_ != nullptr) {
      job.partial_stride = std::min(RoundUp(p.n, kColsOfTile), kBlockCols);
      job.partial = partial_ + (c_row - step.partial_row) * job.partial_stride + col;
    }
    if (job.last && !p.plain) job.finish = FinishAt(p, c_row, c_col);
    geometry_.run(job);
  }

  static internal::FinishF32 FinishAt(const Problem& p, int64_t row, int64_t col) {
    return MakeFinish(p.epilogue, p.c, row, col);
  }

  const Geometry& geometry_;
  int threads_;
  std::vector<Problem> problems_;
  std::vector<Step> steps_;
  std::unique_ptr<State[]> states_;
  std::unique_ptr<std::atomic<int64_t>[]> leaves_;  // leaves done, per tile
  int64_t tiles_ = 0;
  float *a_ = nullptr, *b_ = nullptr, *partial_ = nullptr;
  int64_t a_stride_ = 0, b_stride_ = 0;
  int b_buffer_ = 0;
};

}  // namespace

void MatMulF32Blocked(ThreadPool& pool, Isa isa, Workspace& workspace, std::span<const MatMulF32Args> many) {
  Blocked blocked(workspace, isa >= Isa::kAvx512 ? kAvx512 : kAvx2, many, pool.size());
  pool.Run([&](int, int) { blocked.Work(); });
}

}  // namespace octavo::kernels
