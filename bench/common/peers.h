// The other libraries, behind plain functions: OpenBLAS and oneDNN. Row-major operands; `a_transposed` means that A is
// stored [K, M], `b_transposed` that B is stored [N, K]. Leading dimensions are those of gapless matrices.
#pragma once

#include <cstdint>
#include <string>

namespace octavo::bench {

struct PeerProduct {
  int64_t m, n, k;
  bool a_transposed, b_transposed;
};

// Both libraries use this many threads from now on.
void SetPeerThreads(int threads);

// "OpenBLAS 0.3.21 … Zen, 2 threads; oneDNN 2.6.3, OpenMP, 2 threads".
std::string PeerVersions();

void OpenBlasF32(const PeerProduct& p, const float* a, const float* b, float* c);
void OneDnnF32(const PeerProduct& p, const float* a, const float* b, float* c);

// oneDNN's integer products to int32. Without VNNI they add pairs of products in 16 bits, which saturate: full-range
// operands give wrong sums.
void OneDnnS8S8S32(const PeerProduct& p, const int8_t* a, const int8_t* b, int32_t* c);
void OneDnnU8S8S32(const PeerProduct& p, const uint8_t* a, const int8_t* b, int32_t* c);

}  // namespace octavo::bench
