// The integer products with AMX: tdpbssd multiplies 16 rows x 64 steps of signed bytes with 64 steps x 16 columns and
// adds to 16 x 16 int32 sums, exactly. Two strips x two panels make a square of 32 x 32 sums in four tiles; each load
// of a tile serves two products. The lines of 16 columns x 4 steps that the VNNI kernels decode are the rows of a right
// tile as they are, without an offset. Sums leave through memory, where the epilogue of the vectors takes them.
//
// The tiles are configured at the start of a rectangle and released at its end: no other code meets them.
#include "octavo/kernels/int_epilogue_avx512.h"

namespace octavo::kernels {
namespace {

constexpr int kSquare = 32;                                  // rows and columns of a square of sums
constexpr int kTileSumsAmx = kStripRowsAmx * kPanelColumns;  // sums of a tile
constexpr int64_t kTilesTogether = 4;                        // tiles of K multiplied ahead of their scaling

int64_t Least(int64_t a, int64_t b) { return a < b ? a : b; }

// The decoded lines of one line of a panel, signed.
struct CodecI8 {
  static constexpr int kLines = 1;
  const __m512i order = [] {
    // Words of pairs (steps 0-1 of 16 columns, then steps 2-3) to columns of quads.
    alignas(64) uint16_t words[32];
    for (uint16_t c = 0; c < 16; ++c) words[2 * c] = c, words[2 * c + 1] = static_cast<uint16_t>(16 + c);
    return _mm512_load_si512(words);
  }();

  void Decode(const uint8_t* line, uint8_t* to) const {
    _mm512_store_si512(to, _mm512_permutexvar_epi16(order, _mm512_loadu_si512(line)));
  }
};

struct CodecU4 {
  static constexpr int kLines = 2;
  const __m512i mask = _mm512_set1_epi8(15), offset = _mm512_set1_epi8(8);

  void Decode(const uint8_t* line, uint8_t* to) const {
    const __m512i both = _mm512_loadu_si512(line);
    const __m512i low = _mm512_and_si512(both, mask), high = _mm512_and_si512(_mm512_srli_epi16(both, 4), mask);
    _mm512_store_si512(to, _mm512_sub_epi8(low, offset));
    _mm512_store_si512(to + kLineBytes, _mm512_sub_epi8(high, offset));
  }
};

// The tile registers of this thread: tmm0 … tmm3 hold sums, tmm4 and tmm5 strips, tmm6 and tmm7 panels.
class TileRegisters {
 public:
  explicit TileRegisters(const AmxCut& cut) {
    struct alignas(64) {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {};
      uint8_t rows[16] = {};
    } config;
    static_assert(sizeof(config) == 64);
    for (int t = 0; t < 8; ++t) {
      config.rows[t] = t < 6 ? 16 : static_cast<uint8_t>(cut.lines);
      config.row_bytes[t] = t == 4 || t == 5 ? static_cast<uint16_t>(cut.row_bytes()) : 64;
    }
    asm volatile("ldtilecfg %0" : : "m"(config));
  }
  ~TileRegisters() { asm volatile("tilerelease" : : : "memory"); }
  TileRegisters(const TileRegisters&) = delete;
  TileRegisters& operator=(const TileRegisters&) = delete;
};

// What one square works with. Blocks lie one after the other on both sides.
struct Operands {
  const uint8_t *a, *b;      // the first block of the first strip and panel
  int64_t a_strip, b_panel;  // bytes to the second ones
  int64_t row_bytes;         // of a row of a left block
  int64_t block_bytes, blocks;
  const uint8_t* next = nullptr;  // what to fetch meanwhile, 16 lines per block; null: nothing
};

// clang-format off
// sums [32, 32] = (or +=) the products of one or two strips and one or two panels. `x` are the tiles' instructions for
// loading, clearing and storing sums and for one block.
#define OCTAVO_X_LOAD(t, at) "tileloadd " at "(%[c],%[cs]), %%tmm" t "\n\t"
#define OCTAVO_X_ZERO(t, at) "tilezero %%tmm" t "\n\t"
#define OCTAVO_X_STORE(t, at) "tilestored %%tmm" t ", " at "(%[c],%[cs])\n\t"
#define OCTAVO_X_SUMS_11(DO) DO("0", "0")
#define OCTAVO_X_SUMS_12(DO) DO("0", "0") DO("1", "64")
#define OCTAVO_X_SUMS_21(DO) DO("0", "0") DO("2", "2048")
#define OCTAVO_X_SUMS_22(DO) DO("0", "0") DO("1", "64") DO("2", "2048") DO("3", "2112")
#define OCTAVO_X_FIRST \
  "tileloadd (%[b],%[bs]), %%tmm6\n\ttileloadd (%[a],%[as]), %%tmm4\n\ttdpbssd %%tmm6, %%tmm4, %%tmm0\n\t"
#define OCTAVO_X_RIGHT "tileloadd (%[b2],%[bs]), %%tmm7\n\ttdpbssd %%tmm7, %%tmm4, %%tmm1\n\t"
#define OCTAVO_X_LEFT "tileloadd (%[a2],%[as]), %%tmm5\n\ttdpbssd %%tmm6, %%tmm5, %%tmm2\n\t"
#define OCTAVO_X_BLOCK_11 OCTAVO_X_FIRST
#define OCTAVO_X_BLOCK_12 OCTAVO_X_FIRST OCTAVO_X_RIGHT
#define OCTAVO_X_BLOCK_21 OCTAVO_X_FIRST OCTAVO_X_LEFT
#define OCTAVO_X_BLOCK_22 OCTAVO_X_FIRST OCTAVO_X_LEFT OCTAVO_X_RIGHT "tdpbssd %%tmm7, %%tmm5, %%tmm3\n\t"
#define OCTAVO_X_FETCH(at) "prefetcht1 " at "(%[f])\n\t"
#define OCTAVO_X_FETCHES \
  OCTAVO_X_FETCH("0") OCTAVO_X_FETCH("64") OCTAVO_X_FETCH("128") OCTAVO_X_FETCH("192") OCTAVO_X_FETCH("256") \
  OCTAVO_X_FETCH("320") OCTAVO_X_FETCH("384") OCTAVO_X_FETCH("448") OCTAVO_X_FETCH("512") OCTAVO_X_FETCH("576") \
  OCTAVO_X_FETCH("640") OCTAVO_X_FETCH("704") OCTAVO_X_FETCH("768") OCTAVO_X_FETCH("832") OCTAVO_X_FETCH("896") \
  OCTAVO_X_FETCH("960") "add $1024, %[f]\n"
#define OCTAVO_X_SQUARE(name, x) \
  void name(const Operands& in, bool more, int32_t* sums) { \
    const uint8_t *a = in.a, *b = in.b, *a2 = a + in.a_strip, *b2 = b + in.b_panel, *next = in.next; \
    int64_t n = in.blocks; \
    asm volatile("cmpb $0, %[more]\n\t" \
                 "je 2f\n\t" OCTAVO_X_SUMS_##x(OCTAVO_X_LOAD) \
                 "jmp 1f\n" \
                 "2:\n\t" OCTAVO_X_SUMS_##x(OCTAVO_X_ZERO) \
                 ".p2align 4\n" \
                 "1:\n\t" OCTAVO_X_BLOCK_##x \
                 "test %[f], %[f]\n\t" \
                 "jz 3f\n\t" OCTAVO_X_FETCHES \
                 "3:\n\t" \
                 "add %[step], %[a]\n\t" \
                 "add %[step], %[b]\n\t" \
                 "add %[step], %[a2]\n\t" \
                 "add %[step], %[b2]\n\t" \
                 "dec %[n]\n\t" \
                 "jnz 1b\n\t" OCTAVO_X_SUMS_##x(OCTAVO_X_STORE) \
                 : [a] "+&r"(a), [b] "+&r"(b), [a2] "+&r"(a2), [b2] "+&r"(b2), [n] "+&r"(n), [f] "+&r"(next) \
                 : [as] "r"(in.row_bytes), [bs] "r"(kLineBytes), [step] "r"(in.block_bytes), [c] "r"(sums), \
                   [cs] "r"(int64_t{4 * kSquare}), [more] "m"(more) \
                 : "memory", "cc"); \
  }
OCTAVO_X_SQUARE(Square11, 11)
OCTAVO_X_SQUARE(Square12, 12)
OCTAVO_X_SQUARE(Square21, 21)
OCTAVO_X_SQUARE(Square22, 22)

// One tile of K of one strip and one panel, sums in tile `t`, through tiles of its own parity: several are on their way
// together. They leave for memory [16, 16] afterwards.
#define OCTAVO_X_ONE(t, l, r) \
  inline void MultiplyTo##t(const Operands& in, int64_t tile) { \
    const int64_t at = tile * in.blocks * in.block_bytes; \
    const uint8_t *a = in.a + at, *b = in.b + at; \
    int64_t n = in.blocks; \
    asm volatile("tilezero %%tmm" #t "\n" \
                 "1:\n\t" \
                 "tileloadd (%[a],%[as]), %%tmm" #l "\n\ttileloadd (%[b],%[bs]), %%tmm" #r "\n\t" \
                 "tdpbssd %%tmm" #r ", %%tmm" #l ", %%tmm" #t "\n\t" \
                 "add %[step], %[a]\n\t" \
                 "add %[step], %[b]\n\t" \
                 "dec %[n]\n\t" \
                 "jnz 1b\n\t" \
                 : [a] "+&r"(a), [b] "+&r"(b), [n] "+&r"(n) \
                 : [as] "r"(in.row_bytes), [bs] "r"(kLineBytes), [step] "r"(in.block_bytes) \
                 : "memory", "cc"); \
  } \
  inline void StoreFrom##t(int32_t* sums) { \
    asm volatile("tilestored %%tmm" #t ", (%0,%1)" : : "r"(sums + t * kTileSumsAmx), "r"(kLineBytes) : "memory"); \
  }
OCTAVO_X_ONE(0, 4, 6)
OCTAVO_X_ONE(1, 5, 7)
OCTAVO_X_ONE(2, 4, 6)
OCTAVO_X_ONE(3, 5, 7)
// clang-format on

void RunSquare(const Operands& in, int64_t strips, int64_t panels, bool more, int32_t* sums) {
  if (strips == 2) return (panels == 2 ? Square22 : Square21)(in, more, sums);
  (panels == 2 ? Square12 : Square11)(in, more, sums);
}

template <typename Codec, typename Epilogue>
class Rectangle {
 public:
  Rectangle(const IntBlock& block, const IntRect& rect, uint8_t* scratch)
      : block_(block),
        rect_(rect),
        cut_(CutAmx(block.units * Codec::kLines)),
        epilogue_(block),
        scratch_(scratch),
        panels_(rect.panel_end - rect.panel_begin) {}

  void Run() {
    const TileRegisters registers(cut_);
    if (block_.tiles > 1) return RunTilesOfK();
    if (ByPairsAmx(block_, rect_.strip_end - rect_.strip_begin)) return RunPairs();
    // The sums of a long K wait behind the decoded panels.
    const int64_t piece = Least(cut_.blocks, kAmxPiece);
    int32_t* waiting = reinterpret_cast<int32_t*>(scratch_ + (block_.ready ? 0 : panels_ * piece * cut_.block_bytes()));
    for (int64_t first = 0; first < cut_.blocks; first += piece) {
      RunPiece(first, Least(piece, cut_.blocks - first), piece < cut_.blocks ? waiting : nullptr);
    }
  }

 private:
  int64_t panel_bytes() const { return block_.tiles * cut_.tile_bytes(); }
  const uint8_t* Strip(int64_t strip) const {
    return block_.strips + strip * block_.tiles * cut_.block_bytes() * cut_.blocks;
  }

  // Lines of `count` blocks from block `first` on, of every tile of K of some panels: [panels][tiles][blocks], decoded.
  void Decode(int64_t begin, int64_t end, int64_t first, int64_t count) {
    const Codec codec;
    const int64_t line = first * 16 / Codec::kLines;
    const int64_t lines = Least(count * cut_.lines / Codec::kLines, block_.units - line);
    uint8_t* to = scratch_;
    for (int64_t panel = begin; panel < end; ++panel) {
      for (int64_t tile = 0; tile < block_.tiles; ++tile, to += count * cut_.block_bytes()) {
        const uint8_t* from = block_.panels + panel * block_.panel_bytes() + (tile * block_.units + line) * kLineBytes;
        for (int64_t i = 0; i < lines; ++i) codec.Decode(from + i * kLineBytes, to + i * Codec::kLines * kLineBytes);
      }
    }
  }

  // Few strips: a pair of panels at a time, all of K.
  void RunPairs() {
    const int64_t all = block_.padded_cols() / kPanelColumns, pair_bytes = 2 * block_.panel_bytes();
    Operands in{nullptr,          scratch_,           cut_.tile_bytes(), cut_.tile_bytes(),
                cut_.row_bytes(), cut_.block_bytes(), cut_.blocks};
    for (int64_t panel = 0; panel < panels_; panel += 2) {
      const int64_t first = rect_.panel_begin + panel;
      Decode(first, Least(first + 2, rect_.panel_end), 0, cut_.blocks);
      const uint8_t* next = first + 4 <= all ? block_.panels + first * block_.panel_bytes() + pair_bytes : nullptr;
      for (int64_t strip = rect_.strip_begin; strip < rect_.strip_end; strip += 2) {
        // Each pair of strips fetches as much as its blocks allow, until the pair of panels is on its way.
        const int64_t fetched = (strip - rect_.strip_begin) / 2 * cut_.blocks * 1024;
        in.a = Strip(strip);
        in.next = next != nullptr && fetched + cut_.blocks * 1024 <= pair_bytes ? next + fetched : nullptr;
        RunSquare(in, Least(2, rect_.strip_end - strip), Least(2, panels_ - panel), false, acc_[0]);
        Finish(strip, panel, 0, acc_[0]);
      }
    }
  }

  // Blocks first … first + count - 1 of a K in one tile.
  void RunPiece(int64_t first, int64_t count, int32_t* waiting) {
    const uint8_t* b = block_.panels + rect_.panel_begin * panel_bytes() + first * cut_.block_bytes();
    Operands in{nullptr, nullptr, cut_.tile_bytes(), panel_bytes(), cut_.row_bytes(), cut_.block_bytes(), count};
    if (!block_.ready) {
      Decode(rect_.panel_begin, rect_.panel_end, first, count);
      b = scratch_;
      in.b_panel = count * cut_.block_bytes();
    }
    const bool last = first + count == cut_.blocks;
    for (int64_t strip = rect_.strip_begin; strip < rect_.strip_end; strip += 2) {
      for (int64_t panel = 0; panel < panels_; panel += 2) {
        in.a = Strip(strip) + first * cut_.block_bytes();
        in.b = b + panel * in.b_panel;
        int32_t* sums = waiting != nullptr ? waiting : acc_[0];
        RunSquare(in, Least(2, rect_.strip_end - strip), Least(2, panels_ - panel), first > 0, sums);
        if (waiting != nullptr) waiting += kSquare * kSquare;
        if (last) Finish(strip, panel, 0, sums);
      }
    }
  }

  // Hands the sums of one tile of K to the epilogue.
  void Finish(int64_t strip, int64_t panel, int64_t tile, const int32_t* sums) {
    for (int64_t s = 0; s < Least(2, rect_.strip_end - strip); ++s) {
      const int64_t row = (strip + s) * kStripRowsAmx;
      const int rows = static_cast<int>(Least(kStripRowsAmx, block_.rows - row));
      for (int64_t p = 0; p < Least(2, panels_ - panel); ++p) {
        const int64_t at = s * kStripRowsAmx * kSquare + p * kPanelColumns;
        epilogue_.Take({row, rows, 0, kStripRowsAmx, (rect_.panel_begin + panel + p) * kPanelColumns}, tile, sums + at,
                       sum_ + at, kSquare);
      }
    }
  }

  void RunTilesOfK() {
    const uint8_t* b = block_.panels + rect_.panel_begin * panel_bytes();
    if (!block_.ready) {
      Decode(rect_.panel_begin, rect_.panel_end, 0, cut_.blocks);
      b = scratch_;
    }
    const bool fused = epilogue_.fusible();
    for (int64_t strip = rect_.strip_begin; strip < rect_.strip_end; strip += 2) {
      for (int64_t panel = 0; panel < panels_; panel += 2) {
        Operands in{Strip(strip),  b + panel * panel_bytes(), block_.tiles * cut_.tile_bytes(),
                    panel_bytes(), cut_.row_bytes(),          cut_.block_bytes(),
                    cut_.blocks};
        if (fused && (rect_.panel_begin + panel + 2) * kPanelColumns <= block_.cols && panel + 2 <= panels_) {
          RunScaled(in, strip, rect_.panel_begin + panel);
          continue;
        }
        for (int64_t tile = 0; tile < block_.tiles; ++tile) {
          RunSquare(in, Least(2, rect_.strip_end - strip), Least(2, panels_ - panel), false, acc_[0]);
          in.a += cut_.tile_bytes();
          in.b += cut_.tile_bytes();
          Finish(strip, panel, tile, acc_[0]);
        }
      }
    }
  }

  // One or two strips and two whole panels, all tiles of K: one strip and one panel at a time, whose 16 rows of float
  // sums stay in registers.
  void RunScaled(const Operands& all, int64_t strip, int64_t panel) {
    for (int64_t s = strip; s < Least(strip + 2, rect_.strip_end); ++s) {
      for (int64_t p = 0; p < 2; ++p) {
        Operands in = all;
        in.a += (s - strip) * all.a_strip;
        in.b += p * all.b_panel;
        ScaledSums(in, s * kStripRowsAmx, (panel + p) * kPanelColumns);
      }
    }
  }

  void ScaledSums(const Operands& in, int64_t row, int64_t n) {
    const int64_t rows = Least(kStripRowsAmx, block_.rows - row);
    alignas(64) float row_scale[kStripRowsAmx] = {};
    for (int64_t r = 0; r < rows; ++r) row_scale[r] = epilogue_.RowScale(row + r);
    const float* col = epilogue_.ColScales(n);
    __m512 sum[kStripRowsAmx];
#pragma GCC unroll 16
    for (int r = 0; r < kStripRowsAmx; ++r) sum[r] = _mm512_set1_ps(kMinusZero);
    // The vectors scale some tiles of K while the next ones are multiplied.
    Multiply(in, 0, acc_[0]);
    for (int64_t first = 0, turn = 0; first < block_.tiles; first += kTilesTogether, turn ^= 1) {
      Multiply(in, first + kTilesTogether, acc_[turn ^ 1]);
      const int32_t* sums = acc_[turn];
      for (int64_t tile = first; tile < Least(first + kTilesTogether, block_.tiles); ++tile, sums += kTileSumsAmx) {
        const __m512 scale = _mm512_loadu_ps(col + tile * epilogue_.col_tile_stride());
#pragma GCC unroll 16
        for (int r = 0; r < kStripRowsAmx; ++r) {
          const __m512 value = _mm512_cvtepi32_ps(_mm512_load_si512(sums + r * kPanelColumns));
          sum[r] = _mm512_add_ps(sum[r], _mm512_mul_ps(_mm512_mul_ps(value, _mm512_set1_ps(row_scale[r])), scale));
        }
      }
    }
    // Through memory: a register cannot be indexed.
#pragma GCC unroll 16
    for (int r = 0; r < kStripRowsAmx; ++r) _mm512_store_ps(sum_ + r * kPanelColumns, sum[r]);
    for (int64_t r = 0; r < rows; ++r) epilogue_.FinishSum(_mm512_load_ps(sum_ + r * kPanelColumns), row + r, n);
  }

  // The sums of tiles first … of K, those that exist, one after the other.
  void Multiply(const Operands& in, int64_t first, int32_t* sums) {
    const int64_t count = Least(kTilesTogether, block_.tiles - first);
    if (count > 0) MultiplyTo0(in, first);
    if (count > 1) MultiplyTo1(in, first + 1);
    if (count > 2) MultiplyTo2(in, first + 2);
    if (count > 3) MultiplyTo3(in, first + 3);
    if (count > 0) StoreFrom0(sums);
    if (count > 1) StoreFrom1(sums);
    if (count > 2) StoreFrom2(sums);
    if (count > 3) StoreFrom3(sums);
  }

  const IntBlock& block_;
  const IntRect& rect_;
  const AmxCut cut_;
  const Epilogue epilogue_;
  uint8_t* scratch_;
  const int64_t panels_;
  alignas(64) int32_t acc_[2][kSquare * kSquare];
  alignas(64) float sum_[kSquare * kSquare];
};

template <typename Codec>
void RunBlock(const IntBlock& block, const IntRect& rect, uint8_t* scratch) {
  WithEpilogue(block, [&]<typename Epilogue>() { Rectangle<Codec, Epilogue>(block, rect, scratch).Run(); });
}

}  // namespace

void BlockI8Amx(const IntBlock& block, const IntRect& rect, uint8_t* scratch) {
  RunBlock<CodecI8>(block, rect, scratch);
}
void BlockU4Amx(const IntBlock& block, const IntRect& rect, uint8_t* scratch) {
  RunBlock<CodecU4>(block, rect, scratch);
}

}  // namespace octavo::kernels
