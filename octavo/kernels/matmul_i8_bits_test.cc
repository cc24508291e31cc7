// The bit rule for the integer products: exact at the extremes, the same for every row whatever else is in the batch,
// for every thread count, stride, alignment and packing; nothing read or written outside the operands.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "octavo/kernels/int_test_support.h"
#include "octavo/kernels/matmul_i8.h"
#include "octavo/kernels/matmul_u4.h"

namespace octavo::kernels {
namespace {

PanelsI8 Pack(const MatrixView<const int8_t>& b, int64_t tile, Buffer& memory) {
  ThreadPool pool(1);
  memory = Buffer(static_cast<size_t>(PanelsI8Bytes(b.rows, b.cols, tile)));
  return PackPanelsI8(pool, ChooseIsa().isa, b, tile, static_cast<int8_t*>(memory.data()), nullptr);
}

TEST(MatMulI8Bits, ExtremeCodesAreExactUpToTheBound) {
  ThreadPool pool(2);
  for (const int64_t k : {int64_t{131071}, int64_t{131070}, int64_t{4099}}) {
    for (const int left : {-128, 127}) {
      for (const int right : {-128, 127}) {
        for (const int64_t m : {2, 19}) {
          const std::vector<int8_t> a(static_cast<size_t>(m * k), static_cast<int8_t>(left));
          const std::vector<int8_t> b(static_cast<size_t>(17 * k), static_cast<int8_t>(right));
          std::vector<int32_t> out(static_cast<size_t>(m * 17));
          MatMulI8Args args{.a = RowMajor(a.data(), m, k), .b = RowMajor(b.data(), k, 17)};
          args.out.i32 = RowMajor(out.data(), m, 17);
          MatMulI8(pool, ChooseIsa().isa, args);
          for (const int32_t sum : out) ASSERT_EQ(sum, left * right * k) << k << " " << left << " " << right;
        }
      }
    }
  }
}

TEST(MatMulI8Bits, EveryPairOfCodesMeets) {
  // a = all codes down the rows, b = all codes along the columns, K = 1: the table of products.
  std::vector<int8_t> codes;
  for (int code = -128; code < 128; ++code) codes.push_back(static_cast<int8_t>(code));
  std::vector<int32_t> out(256 * 256);
  MatMulI8Args args{.a = RowMajor<const int8_t>(codes.data(), 256, 1),
                    .b = RowMajor<const int8_t>(codes.data(), 1, 256)};
  args.out.i32 = RowMajor(out.data(), 256, 256);
  ThreadPool pool(2);
  MatMulI8(pool, ChooseIsa().isa, args);
  for (int i = 0; i < 256; ++i) {
    for (int j = 0; j < 256; ++j) ASSERT_EQ(out[static_cast<size_t>(i * 256 + j)], (i - 128) * (j - 128));
  }
}

TEST(MatMulI8Bits, StridesAndTransposesChangeNothing) {
  const int64_t m = 29, n = 53, k = 117;
  const std::vector<int8_t> a = RandomCodes(1, m * k), b = RandomCodes(2, k * n);
  std::vector<int32_t> expected(static_cast<size_t>(m * n));
  MatMulI8Args args{.a = RowMajor(a.data(), m, k), .b = RowMajor(b.data(), k, n)};
  args.out.i32 = RowMajor(expected.data(), m, n);
  MatMulI8Reference(args);
  // The same values in other places: gaps of `gap` between elements or rows, either order, odd start.
  struct Layout {
    bool turned;
    int64_t gap, pad;
  };
  const Layout layouts[] = {{false, 1, 0}, {false, 1, 3}, {true, 1, 0}, {true, 1, 5}, {false, 2, 1}, {true, 3, 0}};
  const auto place = [](const std::vector<int8_t>& from, int64_t rows, int64_t cols, Layout layout,
                        std::vector<int8_t>& memory) {
    const int64_t inner = layout.turned ? rows : cols, outer = layout.turned ? cols : rows;
    const int64_t line = inner * layout.gap + layout.pad;
    memory.assign(static_cast<size_t>(outer * line + 1), 77);
    MatrixView<int8_t> view = {memory.data() + 1, rows, cols, line, layout.gap};
    if (layout.turned) view = {memory.data() + 1, rows, cols, layout.gap, line};
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) view.at(r, c) = from[static_cast<size_t>(r * cols + c)];
    }
    return MatrixView<const int8_t>{view.data, rows, cols, view.row_stride, view.col_stride};
  };
  ThreadPool pool(2);
  for (const Layout& la : layouts) {
    for (const Layout& lb : layouts) {
      for (const int64_t out_gap : {1, 2}) {
        std::vector<int8_t> ma, mb;
        args.a = place(a, m, k, la, ma);
        args.b = place(b, k, n, lb, mb);
        std::vector<int32_t> out(static_cast<size_t>(m * n * out_gap + 1), -1);
        args.out.i32 = {out.data() + 1, m, n, n * out_gap, out_gap};
        MatMulI8(pool, ChooseIsa().isa, args);
        for (int64_t i = 0; i < m * n; ++i) {
          ASSERT_EQ(out[static_cast<size_t>(1 + i * out_gap)], expected[static_cast<size_t>(i)])
              << la.turned << la.gap << la.pad << " " << lb.turned << lb.gap << lb.pad << " at " << i;
        }
      }
    }
  }
}

// Rows with scales, in tiles, from packed panels.
struct Batch {
  Batch(int64_t m_, int64_t n_, int64_t k_, int64_t tile_) : m(m_), n(n_), k(k_), tile(tile_) {
    a = RandomCodes(1, m * k);
    b = RandomCodes(2, k * n);
    const int64_t tiles = CutTiles(k, tile).count;
    row_scale = RandomScales(3, m * tiles);
    col_scale = RandomScales(4, n * tiles);
    bias = RandomFloats(5, n);
    panels = Pack(RowMajor<const int8_t>(b.data(), k, n), tile, memory);
  }

  // Rows begin … end on their own.
  std::vector<float> Rows(int threads, int64_t begin, int64_t end) const {
    ThreadPool pool(threads);
    const int64_t tiles = CutTiles(k, tile).count;
    std::vector<float> out(static_cast<size_t>((end - begin) * n), -1.0f);
    MatMulI8Args args{.a = RowMajor(a.data() + begin * k, end - begin, k), .panels = panels, .tile = tile};
    args.epilogue.row_scale = {row_scale.data() + begin * tiles, tiles, 1};
    args.epilogue.col_scale = {col_scale.data(), 1, n};
    args.epilogue.bias = {bias.data()};
    args.out.f32 = RowMajor(out.data(), end - begin, n);
    MatMulI8(pool, ChooseIsa().isa, args);
    return out;
  }

  int64_t m, n, k, tile;
  std::vector<int8_t> a, b;
  std::vector<float> row_scale, col_scale, bias;
  Buffer memory;
  PanelsI8 panels;
};

TEST(MatMulI8Bits, ARowAloneEqualsTheRowInABatchForAnyThreads) {
  for (const int64_t tile : {0, 128, 100}) {
    const Batch batch(71, 90, 1100, tile);
    const std::vector<float> whole = batch.Rows(1, 0, batch.m);
    for (const int threads : {2, 3, 7}) EXPECT_EQ(HashOf(batch.Rows(threads, 0, batch.m)), HashOf(whole));
    for (int64_t row = 0; row < batch.m; ++row) {
      const std::vector<float> in_batch(whole.begin() + row * batch.n, whole.begin() + (row + 1) * batch.n);
      ASSERT_EQ(HashOf(batch.Rows(2, row, row + 1)), HashOf(in_batch)) << row;
    }
    for (const int64_t begin : {5, 33, 60}) {  // other offsets, other strips
      const std::vector<float> part = batch.Rows(2, begin, begin + 8);
      EXPECT_EQ(part, std::vector<float>(whole.begin() + begin * batch.n, whole.begin() + (begin + 8) * batch.n));
    }
  }
}

TEST(MatMulI8Bits, AnotherOrderOfTilesWouldBeSeen) {
  // The hashes above are only worth something if a wrong order of tiles changes them.
  const Batch batch(40, 64, 1024, 128);
  int differ = 0;
  for (int64_t m = 0; m < batch.m; ++m) {
    for (int64_t n = 0; n < batch.n; ++n) {
      float ascending = 0, descending = 0;
      for (int64_t t = 0; t < 8; ++t) {
        const auto part = [&](int64_t tile) {
          int32_t sum = 0;
          for (int64_t k = tile * 128; k < (tile + 1) * 128; ++k) {
            sum += batch.a[static_cast<size_t>(m * 1024 + k)] * batch.b[static_cast<size_t>(k * 64 + n)];
          }
          return (static_cast<float>(sum) * batch.row_scale[static_cast<size_t>(m * 8 + tile)]) *
                 batch.col_scale[static_cast<size_t>(tile * 64 + n)];
        };
        ascending = t == 0 ? part(0) : ascending + part(t);
        descending = t == 0 ? part(7) : descending + part(7 - t);
      }
      differ += ascending != descending;
      if (n == 0) {
        ASSERT_EQ(batch.Rows(2, m, m + 1)[0], ascending + batch.bias[0]);
      }
    }
  }
  EXPECT_GT(differ, 500);
}

TEST(MatMulI8Bits, ManyRowsPassByPass) {
  // More packed rows than the driver keeps at once, and more tasks than workers.
  const int64_t m = 5003, n = 20, k = 1001;
  const std::vector<int8_t> a = RandomCodes(1, m * k), b = RandomCodes(2, k * n);
  std::vector<int32_t> out(static_cast<size_t>(m * n)), expected(out.size());
  MatMulI8Args args{.a = RowMajor(a.data(), m, k), .b = RowMajor(b.data(), k, n)};
  args.out.i32 = RowMajor(out.data(), m, n);
  Workspace workspace;
  args.workspace = &workspace;
  ThreadPool pool(3);
  MatMulI8(pool, ChooseIsa().isa, args);
  args.out.i32 = RowMajor(expected.data(), m, n);
  MatMulI8Reference(args);
  EXPECT_EQ(out, expected);
}

// `bytes` bytes that end where an unreadable page begins.
class Guarded {
 public:
  explicit Guarded(size_t bytes) : page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))) {
    size_ = (bytes + page_ - 1) / page_ * page_ + page_;
    memory_ = static_cast<char*>(mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_NE(memory_, MAP_FAILED);
    EXPECT_EQ(mprotect(memory_ + size_ - page_, page_, PROT_NONE), 0);
    data_ = memory_ + size_ - page_ - bytes;
  }
  ~Guarded() { munmap(memory_, size_); }
  Guarded(const Guarded&) = delete;
  template <typename T>
  T* As() const {
    return reinterpret_cast<T*>(data_);
  }
  template <typename T>
  static void Fill(const Guarded& to, const std::vector<T>& from) {
    std::memcpy(to.data_, from.data(), from.size() * sizeof(T));
  }

 private:
  size_t page_, size_;
  char *memory_, *data_;
};

TEST(MatMulI8Bits, NothingOutsideTheOperandsIsTouched) {
  struct Extent {
    int64_t m, n, k;
  };
  ThreadPool pool(2);
  for (const Extent& e : {Extent{1, 1, 1}, {4, 16, 16}, {5, 17, 19}, {7, 30, 33}, {21, 47, 70}, {16, 64, 128}}) {
    for (const bool turned : {false, true}) {
      const std::vector<int8_t> av = RandomCodes(1, e.m * e.k), bv = RandomCodes(2, e.k * e.n);
      const std::vector<float> rs = RandomScales(3, e.m), cs = RandomScales(4, e.n);
      const Guarded a(av.size()), b(bv.size()), row(rs.size() * 4), col(cs.size() * 4);
      const Guarded out(static_cast<size_t>(e.m * e.n) * 4);
      Guarded::Fill(a, av);
      Guarded::Fill(b, bv);
      Guarded::Fill(row, rs);
      Guarded::Fill(col, cs);
      MatMulI8Args args{.a = RowMajor(a.As<const int8_t>(), e.m, e.k), .b = RowMajor(b.As<const int8_t>(), e.k, e.n)};
      if (turned) {
        args.a = RowMajor(a.As<const int8_t>(), e.k, e.m).Transposed();
        args.b = RowMajor(b.As<const int8_t>(), e.n, e.k).Transposed();
      }
      args.epilogue.row_scale = {row.As<float>()};
      args.epilogue.col_scale = {col.As<float>()};
      args.out.f32 = RowMajor(out.As<float>(), e.m, e.n);
      MatMulI8(pool, ChooseIsa().isa, args);
      std::vector<float> expected(static_cast<size_t>(e.m * e.n));
      args.out.f32 = RowMajor(expected.data(), e.m, e.n);
      MatMulI8Reference(args);
      EXPECT_EQ(std::memcmp(out.As<float>(), expected.data(), expected.size() * 4), 0) << e.m << turned;
      // int4 weights from panels that end at the page.
      const std::vector<int8_t> wv = RandomCodes(5, e.k * e.n, -8, 7);
      const Guarded panels(static_cast<size_t>(PanelsU4Bytes(e.k, e.n, 0)));
      MatMulU4Args four{.a = args.a, .epilogue = args.epilogue};
      four.panels =
          PackPanelsU4(pool, ChooseIsa().isa, RowMajor(wv.data(), e.k, e.n), 0, panels.As<uint8_t>(), nullptr);
      four.out.f32 = RowMajor(out.As<float>(), e.m, e.n);
      MatMulU4(pool, ChooseIsa().isa, four);
      four.out.f32 = RowMajor(expected.data(), e.m, e.n);
      MatMulU4Reference(four);
      EXPECT_EQ(std::memcmp(out.As<float>(), expected.data(), expected.size() * 4), 0) << e.m << turned;
    }
  }
}

TEST(MatMulI8Bits, PackedPanelsAreTheSameFromBothInstructionSets) {
  ThreadPool pool(2);
  for (const int64_t tile : {0, 32, 30}) {
    for (const bool turned : {false, true}) {
      const int64_t k = 130, n = 75;
      const std::vector<int8_t> codes = RandomCodes(9, k * n);
      const MatrixView<const int8_t> b =
          turned ? RowMajor(codes.data(), n, k).Transposed() : RowMajor(codes.data(), k, n);
      const int64_t bytes = PanelsI8Bytes(k, n, tile), sums = PanelsI8Sums(k, n, tile);
      Buffer fast(static_cast<size_t>(bytes)), plain(static_cast<size_t>(bytes));
      std::vector<int32_t> fast_sums(static_cast<size_t>(sums)), plain_sums(fast_sums.size());
      PackPanelsI8(pool, ChooseIsa().isa, b, tile, static_cast<int8_t*>(fast.data()), fast_sums.data());
      PackPanelsI8(pool, Isa::kReference, b, tile, static_cast<int8_t*>(plain.data()), plain_sums.data());
      EXPECT_EQ(std::memcmp(fast.data(), plain.data(), static_cast<size_t>(bytes)), 0);
      EXPECT_EQ(fast_sums, plain_sums);
    }
  }
}

}  // namespace
}  // namespace octavo::kernels
