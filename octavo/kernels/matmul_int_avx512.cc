// The integer products with VNNI. vpdpbusd adds four products of an unsigned and a signed byte to an int32 sum without
// saturating, so weights enter as unsigned bytes (code + 128 for int8, code + 8 for int4), activations as they are, and
// a constant per row takes the offset out again: row_add = -offset * (sum of the row's codes). Sums wrap modulo 2^32 on
// the way and the exact result fits.
//
// Panels keep the one form they have for every instruction set; a rectangle's panels are first rewritten to lines of 16
// columns x 4 steps in the second cache ("decoded"), which pays from a few strips on. Few rows are multiplied straight
// from the panels.
#include <utility>

#include "octavo/kernels/int_epilogue_avx512.h"
#include "octavo/kernels/tile_avx512.h"

namespace octavo::kernels {
namespace {

int64_t Least(int64_t a, int64_t b) { return a < b ? a : b; }

// The decoded lines of one line of a panel.
struct CodecI8 {
  static constexpr int kLines = 1;  // decoded lines in a line
  const __m512i order = [] {
    // Words of pairs (steps 0-1 of 16 columns, then steps 2-3) to columns of quads.
    alignas(64) uint16_t words[32];
    for (uint16_t c = 0; c < 16; ++c) words[2 * c] = c, words[2 * c + 1] = static_cast<uint16_t>(16 + c);
    return _mm512_load_si512(words);
  }();
  const __m512i offset = _mm512_set1_epi8(-128);

  void Decode(const uint8_t* line, __m512i (&to)[kLines]) const {
    to[0] = _mm512_xor_si512(_mm512_permutexvar_epi16(order, _mm512_loadu_si512(line)), offset);
  }
};

struct CodecU4 {
  static constexpr int kLines = 2;
  const __m512i mask = _mm512_set1_epi8(15);

  void Decode(const uint8_t* line, __m512i (&to)[kLines]) const {
    const __m512i both = _mm512_loadu_si512(line);
    to[0] = _mm512_and_si512(both, mask);
    to[1] = _mm512_and_si512(_mm512_srli_epi16(both, 4), mask);
  }
};

// What one tile of outputs works with.
struct Operands {
  const uint8_t* a;  // [steps][rows], 4 bytes each
  int64_t a_step;    // bytes from step to step
  const uint8_t* b;  // decoded lines
  int64_t b_panel;   // bytes from panel to panel
  int64_t steps;
  const uint8_t* next;  // what to fetch meanwhile, a line per step
  int64_t next_step;    // 64, or 0 for nothing
};

// clang-format off
#define OCTAVO_T_LOAD(x, r, c0, c1, t) \
  "vmovdqu64 128*" r "(%[c]), %%zmm" c0 "\n\tvmovdqu64 128*" r "+64(%[c]), %%zmm" c1 "\n\t"
#define OCTAVO_T_STORE(x, r, c0, c1, t) \
  "vmovdqu64 %%zmm" c0 ", 128*" r "(%[c])\n\tvmovdqu64 %%zmm" c1 ", 128*" r "+64(%[c])\n\t"

// acc [rows, 32] = (or +=) the raw sums of `rows` rows and one or two panels.
#define OCTAVO_INT_TILE(name, rows, lines, ROW) \
  void name(const Operands& in, bool more, int32_t* acc) { \
    const uint8_t *a = in.a, *b = in.b, *next = in.next; \
    int64_t n = in.steps; \
    asm volatile("test %[more], %[more]\n\t" \
                 "jz 2f\n\t" OCTAVO_T_ROWS_##rows(OCTAVO_T_LOAD, "") \
                 "jmp 1f\n" \
                 "2:\n\t" OCTAVO_T_ROWS_##rows(OCTAVO_T_ZERO, "") \
                 OCTAVO_T_STEPS(lines, OCTAVO_T_FETCH_BOTH, OCTAVO_T_ROWS_##rows(ROW, "vpdpbusd")) \
                 OCTAVO_T_ROWS_##rows(OCTAVO_T_STORE, "") \
                 : [a] "+&r"(a), [b] "+&r"(b), [n] "+&r"(n), [f] "+&r"(next) \
                 : [as] "r"(in.a_step), [bs] "r"(in.b_panel), [fs] "r"(in.next_step), [c] "r"(acc), \
                   [more] "r"(int64_t{more}) \
                 : OCTAVO_T_REGISTERS); \
  }
OCTAVO_INT_TILE(Pair14, 14, OCTAVO_T_LINES_2, OCTAVO_T_ROW)
OCTAVO_INT_TILE(Pair8, 8, OCTAVO_T_LINES_2, OCTAVO_T_ROW)
OCTAVO_INT_TILE(Pair4, 4, OCTAVO_T_LINES_2, OCTAVO_T_ROW)
OCTAVO_INT_TILE(Pair2, 2, OCTAVO_T_LINES_2, OCTAVO_T_ROW)
OCTAVO_INT_TILE(Pair1, 1, OCTAVO_T_LINES_2, OCTAVO_T_ROW)
OCTAVO_INT_TILE(One14, 14, OCTAVO_T_LINES_1, OCTAVO_T_HALF)
OCTAVO_INT_TILE(One8, 8, OCTAVO_T_LINES_1, OCTAVO_T_HALF)
OCTAVO_INT_TILE(One4, 4, OCTAVO_T_LINES_1, OCTAVO_T_HALF)
OCTAVO_INT_TILE(One2, 2, OCTAVO_T_LINES_1, OCTAVO_T_HALF)
OCTAVO_INT_TILE(One1, 1, OCTAVO_T_LINES_1, OCTAVO_T_HALF)

// Tiles of K with scales: 7 rows x 2 panels of int32 sums in zmm0 … zmm13 and of float sums in zmm14 … zmm27. At the end
// of a tile of K the sums get the row's constant, are scaled by row and by column (zmm28, zmm29) and added.
#define OCTAVO_T_SCALE_ONE(r, c, s, col) \
  "vpaddd 4*" r "(%[add])%{1to16%}, %%zmm" c ", %%zmm" c "\n\t" \
  "vcvtdq2ps %%zmm" c ", %%zmm" c "\n\t" \
  "vmulps 4*" r "(%[rs])%{1to16%}, %%zmm" c ", %%zmm" c "\n\t" \
  "vmulps %%zmm" col ", %%zmm" c ", %%zmm" c "\n\t" \
  "vaddps %%zmm" c ", %%zmm" s ", %%zmm" s "\n\t"
#define OCTAVO_T_SCALE(r, c0, c1, s0, s1) OCTAVO_T_SCALE_ONE(r, c0, s0, "28") OCTAVO_T_SCALE_ONE(r, c1, s1, "29")
#define OCTAVO_T_CLEAR(s) "vmovaps %%zmm14, %%zmm" s "\n\t"
#define OCTAVO_T_SUM(s, at) "vmovups %%zmm" s ", 64*" at "(%[sum])\n\t"
// clang-format on

struct ScaledTiles {
  int64_t tiles;
  const int32_t* row_add;    // of the first row and tile
  int64_t add_step;          // bytes from tile to tile
  const float* row_scale;    // 7 of them
  const float *col0, *col1;  // scales of the two panels for the first tile
  int64_t col_step;          // bytes from tile to tile
};

// sum [7, 32] of tiles of in.steps steps.
void Scaled7(const Operands& in, const ScaledTiles& scales, float* sum) {
  const uint8_t *a = in.a, *b = in.b, *next = in.next;
  const int32_t* add = scales.row_add;
  const float* col = scales.col0;
  const int64_t apart = (scales.col1 - scales.col0) * 4;
  int64_t n = 0, tiles = scales.tiles;
  const float zero = kMinusZero;
  // clang-format off
  asm volatile(
      "vbroadcastss %[zero], %%zmm14\n\t"
      OCTAVO_T_CLEAR("15") OCTAVO_T_CLEAR("16") OCTAVO_T_CLEAR("17") OCTAVO_T_CLEAR("18") OCTAVO_T_CLEAR("19")
      OCTAVO_T_CLEAR("20") OCTAVO_T_CLEAR("21") OCTAVO_T_CLEAR("22") OCTAVO_T_CLEAR("23") OCTAVO_T_CLEAR("24")
      OCTAVO_T_CLEAR("25") OCTAVO_T_CLEAR("26") OCTAVO_T_CLEAR("27")
      "3:\n\t"
      OCTAVO_T_ROWS_7(OCTAVO_T_ZERO, "")
      "mov %[steps], %[n]\n\t"
      OCTAVO_T_STEPS(OCTAVO_T_LINES_2, OCTAVO_T_FETCH_BOTH, OCTAVO_T_ROWS_7(OCTAVO_T_ROW, "vpdpbusd"))
      "vmovups (%[col]), %%zmm28\n\t"
      "vmovups (%[col],%[apart]), %%zmm29\n\t"
      OCTAVO_T_SCALE("0", "0", "1", "14", "15") OCTAVO_T_SCALE("1", "2", "3", "16", "17")
      OCTAVO_T_SCALE("2", "4", "5", "18", "19") OCTAVO_T_SCALE("3", "6", "7", "20", "21")
      OCTAVO_T_SCALE("4", "8", "9", "22", "23") OCTAVO_T_SCALE("5", "10", "11", "24", "25")
      OCTAVO_T_SCALE("6", "12", "13", "26", "27")
      "add %[cs], %[col]\n\t"
      "add %[ds], %[add]\n\t"
      "dec %[tiles]\n\t"
      "jnz 3b\n\t"
      OCTAVO_T_SUM("14", "0") OCTAVO_T_SUM("15", "1") OCTAVO_T_SUM("16", "2") OCTAVO_T_SUM("17", "3")
      OCTAVO_T_SUM("18", "4") OCTAVO_T_SUM("19", "5") OCTAVO_T_SUM("20", "6") OCTAVO_T_SUM("21", "7")
      OCTAVO_T_SUM("22", "8") OCTAVO_T_SUM("23", "9") OCTAVO_T_SUM("24", "10") OCTAVO_T_SUM("25", "11")
      OCTAVO_T_SUM("26", "12") OCTAVO_T_SUM("27", "13")
      : [a] "+&r"(a), [b] "+&r"(b), [n] "+&r"(n), [add] "+&r"(add), [col] "+&r"(col), [tiles] "+&r"(tiles),
        [f] "+&r"(next)
      : [as] "m"(in.a_step), [bs] "r"(in.b_panel), [steps] "m"(in.steps), [apart] "r"(apart), [cs] "m"(scales.col_step),
        [ds] "m"(scales.add_step), [rs] "r"(scales.row_scale), [sum] "r"(sum), [zero] "m"(zero), [fs] "m"(in.next_step)
      : OCTAVO_T_REGISTERS);
  // clang-format on
}

using Tile = void (*)(const Operands&, bool, int32_t*);
struct Sized {
  int rows;
  Tile pair, one;
};
constexpr Sized kTiles[] = {
    {14, Pair14, One14}, {8, Pair8, One8}, {4, Pair4, One4}, {2, Pair2, One2}, {1, Pair1, One1}};

// `rows` <= 14 rows of one or two panels, in as many tiles as it takes.
void RunTiles(Operands in, int rows, int panels, bool more, int32_t* acc) {
  for (int done = 0; done < rows;) {
    const Sized* tile = kTiles;
    while (tile->rows > rows - done) ++tile;
    (panels == 2 ? tile->pair : tile->one)(in, more, acc + done * kTileColumns);
    done += tile->rows;
    in.a += 4 * tile->rows;
  }
}

// ---- few rows, straight from the panels ----

// sum += the products of one decoded line with the four codes at `a`; assembly, because g++ copies the sums around.
inline __attribute__((always_inline)) void AddProducts(__m512i& sum, __m512i line, const uint8_t* a) {
  asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(line), "m"(*reinterpret_cast<const int32_t(*)[1]>(a)));
}

// Lines are asked for so many bytes before they are needed: one takes some 150 ns from a busy memory, in which a core
// reads 2 KiB.
constexpr int64_t kAhead = 4096, kTilesAhead = 16;

// Raw sums of one panel over `lines` lines, acc[r] for each row. Few rows get two sums each, to hide the latency of the
// additions.
template <typename Codec, int kRows>
inline __attribute__((always_inline)) void DirectSums(const Codec& codec, const uint8_t* a, const uint8_t* b,
                                                      int64_t lines, __m512i (&acc)[kRows]) {
  constexpr int kStep = 4 * kRows;  // bytes of the strip per decoded line
  constexpr bool kTwo = kRows <= 4 && Codec::kLines == 2;
  __m512i other[kRows];
#pragma GCC unroll 14
  for (int r = 0; r < kRows; ++r) acc[r] = other[r] = _mm512_setzero_si512();
  for (int64_t line = 0; line < lines; ++line, b += kLineBytes) {
    _mm_prefetch(reinterpret_cast<const char*>(b + kAhead), _MM_HINT_T0);
    __m512i decoded[Codec::kLines];
    codec.Decode(b, decoded);
    for (int i = 0; i < Codec::kLines; ++i, a += kStep) {
#pragma GCC unroll 14
      for (int r = 0; r < kRows; ++r) AddProducts(kTwo && i == 1 ? other[r] : acc[r], decoded[i], a + 4 * r);
    }
  }
  if (kTwo) {
#pragma GCC unroll 14
    for (int r = 0; r < kRows; ++r) acc[r] = _mm512_add_epi32(acc[r], other[r]);
  }
}

// The kRows rows of one strip, from `row` on.
template <typename Codec, int kRows, typename Epilogue>
void DirectPanels(const IntBlock& block, const IntRect& rect, int64_t row, const Epilogue& epilogue) {
  const Codec codec;
  const bool fused = epilogue.fusible();
  const int64_t tiles = block.tiles, a_tile = block.units * Codec::kLines * 4 * kRows,
                b_tile = block.units * kLineBytes;
  const uint8_t* strip = block.strips + row * tiles * block.units * Codec::kLines * 4;
  alignas(64) int32_t acc_memory[kRows * kPanelColumns];
  alignas(64) float sum_memory[kRows * kPanelColumns];
  for (int64_t panel = rect.panel_begin; panel < rect.panel_end; ++panel) {
    const uint8_t* b = block.panels + panel * block.panel_bytes();
    const TilePlace at{row, kRows, 0, kRows, panel * kPanelColumns};
    __m512 sum[kRows];
#pragma GCC unroll 14
    for (int r = 0; r < kRows; ++r) sum[r] = _mm512_set1_ps(kMinusZero);
    const float* col = fused ? epilogue.ColScales(at.n) : nullptr;
    const __mmask16 inside = epilogue.Inside(at.n);
    // The scales are a stream of their own, one line per panel: too rare for the processor to see it coming.
    _mm_prefetch(reinterpret_cast<const char*>(epilogue.ColScales(at.n)), _MM_HINT_T0);
    for (int64_t tile = 0; tile < tiles; ++tile) {
      __m512i acc[kRows];
      DirectSums<Codec, kRows>(codec, strip + tile * a_tile, b + tile * b_tile, block.units, acc);
      if (fused) {
        const float* const scales = col + tile * epilogue.col_tile_stride();
        _mm_prefetch(reinterpret_cast<const char*>(scales + kTilesAhead * epilogue.col_tile_stride()), _MM_HINT_T0);
        const __m512 scale = _mm512_maskz_loadu_ps(inside, scales);
        const int32_t* add = epilogue.RowAdds(at, tile);
#pragma GCC unroll 14
        for (int r = 0; r < kRows; ++r) {
          const __m512 value = _mm512_cvtepi32_ps(_mm512_add_epi32(acc[r], _mm512_set1_epi32(add[r])));
          const __m512 scaled = _mm512_mul_ps(_mm512_mul_ps(value, _mm512_set1_ps(epilogue.RowScale(row + r))), scale);
          sum[r] = _mm512_add_ps(sum[r], scaled);
        }
        continue;
      }
#pragma GCC unroll 14
      for (int r = 0; r < kRows; ++r) _mm512_store_si512(acc_memory + r * kPanelColumns, acc[r]);
      epilogue.Take(at, tile, acc_memory, sum_memory, kPanelColumns);
    }
    if (fused) {
#pragma GCC unroll 14
      for (int r = 0; r < kRows; ++r) epilogue.FinishSum(sum[r], row + r, at.n);
    }
  }
}

template <typename Codec, typename Epilogue, int... kRows>
void DirectStrip(std::integer_sequence<int, kRows...>, int64_t rows, const IntBlock& block, const IntRect& rect,
                 int64_t row, const Epilogue& epilogue) {
  using Run = void (*)(const IntBlock&, const IntRect&, int64_t, const Epilogue&);
  constexpr Run kRun[] = {DirectPanels<Codec, kRows + 1, Epilogue>...};
  kRun[rows - 1](block, rect, row, epilogue);
}

template <typename Codec, typename Epilogue>
void Direct(const IntBlock& block, const IntRect& rect, const Epilogue& epilogue) {
  for (int64_t strip = rect.strip_begin; strip < rect.strip_end; ++strip) {
    const int64_t row = strip * kStripRowsAvx512;
    DirectStrip<Codec>(std::make_integer_sequence<int, kStripRowsAvx512>(), Least(kStripRowsAvx512, block.rows - row),
                       block, rect, row, epilogue);
  }
}

// ---- many rows ----

// Lines [first, first + lines) of every tile of K of some panels: [panel][tile][lines], decoded.
template <typename Codec>
void DecodePanels(const IntBlock& block, int64_t begin, int64_t end, int64_t first, int64_t lines, uint8_t* to) {
  const Codec codec;
  for (int64_t panel = begin; panel < end; ++panel) {
    for (int64_t tile = 0; tile < block.tiles; ++tile) {
      const uint8_t* from = block.panels + panel * block.panel_bytes() + (tile * block.units + first) * kLineBytes;
      for (int64_t line = 0; line < lines; ++line, from += kLineBytes, to += Codec::kLines * kLineBytes) {
        __m512i decoded[Codec::kLines];
        codec.Decode(from, decoded);
        for (int i = 0; i < Codec::kLines; ++i) _mm512_store_si512(to + i * kLineBytes, decoded[i]);
      }
    }
  }
}

template <typename Codec, typename Epilogue>
class Rectangle {
 public:
  Rectangle(const IntBlock& block, const IntRect& rect, uint8_t* scratch)
      : block_(block), rect_(rect), epilogue_(block), decoded_(scratch), fused_(epilogue_.fusible()) {}

  void Run() {
    if (ByPairs(block_, Codec::kLines, rect_.strip_end - rect_.strip_begin)) return RunPairs();
    const int64_t panels = rect_.panel_end - rect_.panel_begin;
    // A long K in one tile goes by in pieces that fit the second cache; its int32 sums wait behind the panels.
    const int64_t piece = block_.tiles > 1 ? block_.units : Least(block_.units, PieceLines(Codec::kLines));
    int32_t* sums = piece < block_.units
                        ? reinterpret_cast<int32_t*>(decoded_ + panels * piece * Codec::kLines * kLineBytes)
                        : nullptr;
    for (int64_t first = 0; first < block_.units; first += piece) {
      const int64_t lines = Least(piece, block_.units - first);
      DecodePanels<Codec>(block_, rect_.panel_begin, rect_.panel_end, first, lines, decoded_);
      int32_t* waiting = sums;
      for (int64_t strip = rect_.strip_begin; strip < rect_.strip_end; ++strip) {
        const uint8_t* b = decoded_;
        for (int64_t panel = rect_.panel_begin; panel < rect_.panel_end; panel += kTilePanels) {
          RunTile(strip, panel, {b, first, lines, b, 0}, waiting != nullptr ? waiting : acc_);
          b += kTilePanels * block_.tiles * lines * Codec::kLines * kLineBytes;
          if (waiting != nullptr) waiting += kTileSums;
        }
      }
    }
  }

 private:
  // The right operand of a tile: decoded lines `first` … of K, and what to fetch meanwhile.
  struct Right {
    const uint8_t* decoded;
    int64_t first, lines;
    const uint8_t* next;
    int64_t next_step;
  };

  void RunPairs() {
    const int64_t pair_bytes = kTilePanels * block_.panel_bytes();
    const int64_t steps = block_.tiles * block_.units * Codec::kLines;
    const int64_t all = block_.padded_cols() / kPanelColumns;
    for (int64_t panel = rect_.panel_begin; panel < rect_.panel_end; panel += kTilePanels) {
      DecodePanels<Codec>(block_, panel, Least(panel + kTilePanels, rect_.panel_end), 0, block_.units, decoded_);
      const bool more = panel + 2 * kTilePanels <= all;
      const uint8_t* next = more ? block_.panels + panel * block_.panel_bytes() + pair_bytes : decoded_;
      for (int64_t strip = rect_.strip_begin; strip < rect_.strip_end; ++strip) {
        const int64_t done = (strip - rect_.strip_begin) * steps * kLineBytes;
        const bool fetch = more && done < pair_bytes;
        RunTile(strip, panel, {decoded_, 0, block_.units, fetch ? next + done : next, fetch ? kLineBytes : 0}, acc_);
      }
    }
  }

  void RunTile(int64_t strip, int64_t panel, const Right& right, int32_t* acc) {
    const int64_t first = right.first, lines = right.lines;
    const int64_t row = strip * kStripRowsAvx512, steps = lines * Codec::kLines;
    const int rows = static_cast<int>(Least(kStripRowsAvx512, block_.rows - row));
    const int panels = panel + 1 < rect_.panel_end ? 2 : 1;
    const int64_t tile_bytes = steps * kLineBytes;
    Operands in;
    in.a_step = 4 * rows;
    in.a = block_.strips + row * block_.tiles * block_.units * Codec::kLines * 4 + first * Codec::kLines * in.a_step;
    in.b = right.decoded;
    in.next = right.next;
    in.next_step = right.next_step;
    in.b_panel = block_.tiles * tile_bytes;
    in.steps = steps;
    int done = 0;
    if (fused_ && panels == 2 && (panel + 2) * kPanelColumns <= block_.cols) {
      for (; done + 7 <= rows; done += 7) RunScaled(in, row, rows, done, panel * kPanelColumns);
      if (done == rows) return;
      in.a += 4 * done;
    }
    for (int64_t tile = 0; tile < block_.tiles; ++tile) {
      RunTiles(in, rows - done, panels, first > 0, acc);
      in.a += in.steps * in.a_step;
      in.b += tile_bytes;
      in.next += in.steps * in.next_step;
      if (first + lines < block_.units) continue;  // more of K to come
      for (int p = 0; p < panels; ++p) {
        epilogue_.Take({row + done, rows - done, done, rows, (panel + p) * kPanelColumns}, tile,
                       acc + p * kPanelColumns, sum_ + p * kPanelColumns, kTileColumns);
      }
    }
  }

  // 7 rows from row `done` of a strip on, all tiles of K.
  void RunScaled(const Operands& all, int64_t row, int rows, int done, int64_t n) {
    Operands in = all;
    in.a += 4 * done;
    float row_scale[7];
    for (int r = 0; r < 7; ++r) row_scale[r] = epilogue_.RowScale(row + done + r);
    const TilePlace at{row + done, 7, done, rows, n};
    Scaled7(in,
            {block_.tiles, epilogue_.RowAdds(at, 0), 4 * rows, row_scale, epilogue_.ColScales(n),
             epilogue_.ColScales(n + kPanelColumns), 4 * epilogue_.col_tile_stride()},
            sum_);
    for (int r = 0; r < 7; ++r) {
      for (int p = 0; p < 2; ++p) {
        epilogue_.FinishSum(_mm512_load_ps(sum_ + (2 * r + p) * kPanelColumns), row + done + r, n + p * kPanelColumns);
      }
    }
  }

  const IntBlock& block_;
  const IntRect& rect_;
  const Epilogue epilogue_;
  uint8_t* decoded_;
  bool fused_;
  alignas(64) int32_t acc_[kTileSums];
  alignas(64) float sum_[kTileSums];
};

template <typename Codec, typename Epilogue>
void RunRect(const IntBlock& block, const IntRect& rect, uint8_t* scratch) {
  if (block.rows <= kDirectRowsAvx512) return Direct<Codec>(block, rect, Epilogue(block));
  Rectangle<Codec, Epilogue>(block, rect, scratch).Run();
}

template <typename Codec>
void RunBlock(const IntBlock& block, const IntRect& rect, uint8_t* scratch) {
  WithEpilogue(block, [&]<typename Epilogue>() { RunRect<Codec, Epilogue>(block, rect, scratch); });
}

}  // namespace

void BlockI8Avx512(const IntBlock& block, const IntRect& rect, uint8_t* scratch) {
  RunBlock<CodecI8>(block, rect, scratch);
}
void BlockU4Avx512(const IntBlock& block, const IntRect& rect, uint8_t* scratch) {
  RunBlock<CodecU4>(block, rect, scratch);
}

}  // namespace octavo::kernels
