// Packing of int4 codes into the nibble lines of matmul_u4.h, one path per contiguous direction.
#include <immintrin.h>

#include <cstring>

#include "octavo/kernels/int_block.h"

namespace octavo::kernels {
namespace {

int64_t Least(int64_t a, int64_t b) { return a < b ? a : b; }

// 16 codes from `p`, of which `count` are inside; the rest 0.
__m128i LoadCodes(const int8_t* p, int64_t count) {
  if (count >= 16) return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  alignas(16) int8_t codes[16] = {};
  if (count > 0) std::memcpy(codes, p, static_cast<size_t>(count));
  return _mm_load_si128(reinterpret_cast<const __m128i*>(codes));
}

// 8 steps x 16 columns of codes + 8 to a line; returns the bits of all of them.
__m128i StoreLine(const __m128i step[8], uint8_t* to) {
  __m128i byte[4], seen = _mm_setzero_si128();
  for (int i = 0; i < 4; ++i) {
    seen = _mm_or_si128(seen, _mm_or_si128(step[i], step[i + 4]));
    // Codes in range leave the upper nibble empty, so a shift of 16-bit lanes stays inside the bytes.
    byte[i] = _mm_or_si128(step[i], _mm_slli_epi16(step[i + 4], 4));
  }
  const __m128i low01 = _mm_unpacklo_epi8(byte[0], byte[1]), high01 = _mm_unpackhi_epi8(byte[0], byte[1]);
  const __m128i low23 = _mm_unpacklo_epi8(byte[2], byte[3]), high23 = _mm_unpackhi_epi8(byte[2], byte[3]);
  __m128i* line = reinterpret_cast<__m128i*>(to);
  _mm_storeu_si128(line, _mm_unpacklo_epi16(low01, low23));
  _mm_storeu_si128(line + 1, _mm_unpackhi_epi16(low01, low23));
  _mm_storeu_si128(line + 2, _mm_unpacklo_epi16(high01, high23));
  _mm_storeu_si128(line + 3, _mm_unpackhi_epi16(high01, high23));
  return seen;
}

// One line of a panel from 8 steps of 16 codes; adds the codes to `sums` and returns the bits of all codes + 8.
__m128i PackLine(const __m128i codes[8], uint8_t* to, __m256i sums[2]) {
  const __m128i eight = _mm_set1_epi8(8);
  __m256i sum = _mm256_setzero_si256();
  __m128i step[8];
  for (int i = 0; i < 8; ++i) {
    sum = _mm256_add_epi16(sum, _mm256_cvtepi8_epi16(codes[i]));
    step[i] = _mm_add_epi8(codes[i], eight);
  }
  sums[0] = _mm256_add_epi32(sums[0], _mm256_cvtepi16_epi32(_mm256_castsi256_si128(sum)));
  sums[1] = _mm256_add_epi32(sums[1], _mm256_cvtepi16_epi32(_mm256_extracti128_si256(sum, 1)));
  return StoreLine(step, to);
}

constexpr int kTogether = 4;  // panels that share the cache lines of a row

// One tile of up to kTogether neighbouring panels; `load(step, panel)` gives 16 codes. Returns the bits of all codes
// + 8.
template <typename Load>
uint8_t PackTile(const PanelsTarget& t, int64_t tile, int64_t begin, int64_t end, const Load& load) {
  __m128i seen = _mm_setzero_si128();
  __m256i sums[kTogether][2] = {};
  for (int64_t unit = 0; unit < t.units; ++unit) {
    for (int64_t panel = begin; panel < end; ++panel) {
      __m128i codes[8];
      for (int i = 0; i < 8; ++i) codes[i] = load(unit * 8 + i, panel);
      uint8_t* to = reinterpret_cast<uint8_t*>(t.data) + ((panel * t.tiles + tile) * t.units + unit) * kLineBytes;
      seen = _mm_or_si128(seen, PackLine(codes, to, sums[panel - begin]));
    }
  }
  for (int64_t panel = begin; panel < end && t.col_sums != nullptr; ++panel) {
    __m256i* at = reinterpret_cast<__m256i*>(t.col_sums + tile * t.padded + panel * kPanelColumns);
    _mm256_storeu_si256(at, sums[panel - begin][0]);
    _mm256_storeu_si256(at + 1, sums[panel - begin][1]);
  }
  alignas(16) uint8_t lanes[16];
  _mm_store_si128(reinterpret_cast<__m128i*>(lanes), seen);
  uint8_t bits = 0;
  for (const uint8_t lane : lanes) bits = static_cast<uint8_t>(bits | lane);
  return bits;
}

}  // namespace

bool PackPanelsU4Avx2(const MatrixView<const int8_t>& b, const PanelsTarget& t, int64_t begin, int64_t end) {
  uint8_t bits = 0;
  for (int64_t panel = begin; panel < end; panel += kTogether) {
    const int64_t last = Least(panel + kTogether, end);
    const bool whole = b.col_stride == 1 && last * kPanelColumns <= b.cols;
    for (int64_t tile = 0; tile < t.tiles; ++tile) {
      const int64_t k0 = tile * t.tile_length, length = Least(t.tile_length, b.rows - k0);
      const auto at = [&](int64_t step, int64_t p) {
        return b.data + (k0 + step) * b.row_stride + p * kPanelColumns * b.col_stride;
      };
      const uint8_t found = whole ? PackTile(t, tile, panel, last,
                                             [&](int64_t step, int64_t p) {
                                               if (step >= length) return _mm_setzero_si128();
                                               return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at(step, p)));
                                             })
                                  : PackTile(t, tile, panel, last, [&](int64_t step, int64_t p) {
                                      if (step >= length) return _mm_setzero_si128();
                                      const int64_t columns = Least(kPanelColumns, b.cols - p * kPanelColumns);
                                      const int8_t* from = at(step, p);
                                      if (b.col_stride == 1) return LoadCodes(from, columns);
                                      alignas(16) int8_t codes[16] = {};
                                      for (int64_t c = 0; c < columns; ++c) codes[c] = from[c * b.col_stride];
                                      return _mm_load_si128(reinterpret_cast<const __m128i*>(codes));
                                    });
      bits = static_cast<uint8_t>(bits | found);
    }
  }
  return (bits & 0xF0) == 0;
}

}  // namespace octavo::kernels
