// Checks of products that touch every output without computing the product again: C = A·B implies C·x = A·(B·x). With
// integer data everything is exact, so one wrong output anywhere shows (random x modulo 2^64: a miss has probability
// 2^-63). Accessors are callables (row, column) -> value.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "bench/common/harness.h"

namespace octavo::bench {

// All values are whole numbers, and every partial sum was exact (|sum| < 2^24 for f32 arithmetic).
template <typename A, typename B, typename C>
Verdict ExactProduct(int64_t m, int64_t n, int64_t k, A&& a, B&& b, C&& c) {
  std::mt19937_64 engine(7);
  std::vector<uint64_t> x(static_cast<size_t>(n)), y(static_cast<size_t>(k));
  for (uint64_t& v : x) v = engine() | 1;
  for (int64_t r = 0; r < k; ++r) {
    uint64_t sum = 0;
    for (int64_t j = 0; j < n; ++j) sum += static_cast<uint64_t>(static_cast<int64_t>(b(r, j))) * x[j];
    y[r] = sum;
  }
  int64_t wrong_rows = 0, first = -1;
  for (int64_t i = 0; i < m; ++i) {
    uint64_t want = 0, found = 0;
    for (int64_t r = 0; r < k; ++r) want += static_cast<uint64_t>(static_cast<int64_t>(a(i, r))) * y[r];
    for (int64_t j = 0; j < n; ++j) found += static_cast<uint64_t>(static_cast<int64_t>(c(i, j))) * x[j];
    if (want != found && wrong_rows++ == 0) first = i;
  }
  if (wrong_rows == 0) return {true, 0, "exact"};
  return {false, static_cast<double>(wrong_rows) / static_cast<double>(m),
          "wrong in " + std::to_string(wrong_rows) + " rows, first " + std::to_string(first)};
}

// Values with fractions: `samples` outputs are computed again in the order that the bit rules fix (leaves of 256, FMA),
// and must be equal bit for bit.
template <typename A, typename B, typename C>
Verdict SampledBits(int64_t m, int64_t n, int64_t k, int samples, A&& a, B&& b, C&& c) {
  std::mt19937_64 engine(11);
  int wrong = 0;
  for (int s = 0; s < samples; ++s) {
    const int64_t i = s == 0 ? m - 1 : static_cast<int64_t>(engine() % static_cast<uint64_t>(m));
    const int64_t j = s == 0 ? n - 1 : static_cast<int64_t>(engine() % static_cast<uint64_t>(n));
    float sum = 0;
    for (int64_t k0 = 0; k0 < k; k0 += 256) {
      float leaf = 0;
      for (int64_t r = k0; r < std::min<int64_t>(k0 + 256, k); ++r) leaf = std::fmaf(a(i, r), b(r, j), leaf);
      sum = k0 == 0 ? leaf : sum + leaf;
    }
    wrong += sum != c(i, j);
  }
  if (wrong == 0) return {true, 0, "bits of the reference"};
  return {false, static_cast<double>(wrong) / samples, std::to_string(wrong) + " of the sampled outputs differ"};
}

}  // namespace octavo::bench
