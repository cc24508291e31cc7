#include "bench/common/peers.h"

#include <cblas.h>
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>

#include "octavo/base/error.h"

namespace octavo::bench {
namespace {

struct Leading {
  int64_t a, b, c;
};

Leading LeadingOf(const PeerProduct& p) { return {p.a_transposed ? p.m : p.k, p.b_transposed ? p.k : p.n, p.n}; }

void CheckStatus(dnnl_status_t status, const char* what) {
  if (status != dnnl_success) {
    throw Error(ErrorCode::kJob, fmt::format("oneDNN {} failed with status {}", what, static_cast<int>(status)));
  }
}

char Letter(bool transposed) { return transposed ? 'T' : 'N'; }

}  // namespace

void SetPeerThreads(int threads) {
  openblas_set_num_threads(threads);
  omp_set_num_threads(threads);
  if (openblas_get_num_threads() != threads) {
    throw Error(ErrorCode::kUsage,
                fmt::format("OpenBLAS takes {} threads, asked for {}", openblas_get_num_threads(), threads),
                "unset OPENBLAS_NUM_THREADS, or use --threads with what the library was built for");
  }
}

std::string PeerVersions() {
  const dnnl_version_t* v = dnnl_version();
  return fmt::format("{} ({}), {} threads; oneDNN {}.{}.{}, OpenMP, {} threads", openblas_get_config(),
                     openblas_get_corename(), openblas_get_num_threads(), v->major, v->minor, v->patch,
                     omp_get_max_threads());
}

void OpenBlasF32(const PeerProduct& p, const float* a, const float* b, float* c) {
  const Leading ld = LeadingOf(p);
  cblas_sgemm(CblasRowMajor, p.a_transposed ? CblasTrans : CblasNoTrans, p.b_transposed ? CblasTrans : CblasNoTrans,
              static_cast<int>(p.m), static_cast<int>(p.n), static_cast<int>(p.k), 1.0f, a, static_cast<int>(ld.a), b,
              static_cast<int>(ld.b), 0.0f, c, static_cast<int>(ld.c));
}

void OneDnnF32(const PeerProduct& p, const float* a, const float* b, float* c) {
  const Leading ld = LeadingOf(p);
  CheckStatus(
      dnnl_sgemm(Letter(p.a_transposed), Letter(p.b_transposed), p.m, p.n, p.k, 1.0f, a, ld.a, b, ld.b, 0.0f, c, ld.c),
      "sgemm");
}

void OneDnnS8S8S32(const PeerProduct& p, const int8_t* a, const int8_t* b, int32_t* c) {
  const Leading ld = LeadingOf(p);
  const int32_t no_offset = 0;
  CheckStatus(dnnl_gemm_s8s8s32(Letter(p.a_transposed), Letter(p.b_transposed), 'F', p.m, p.n, p.k, 1.0f, a, ld.a, 0, b,
                                ld.b, 0, 0.0f, c, ld.c, &no_offset),
              "gemm_s8s8s32");
}

void OneDnnU8S8S32(const PeerProduct& p, const uint8_t* a, const int8_t* b, int32_t* c) {
  const Leading ld = LeadingOf(p);
  const int32_t no_offset = 0;
  CheckStatus(dnnl_gemm_u8s8s32(Letter(p.a_transposed), Letter(p.b_transposed), 'F', p.m, p.n, p.k, 1.0f, a, ld.a, 0, b,
                                ld.b, 0, 0.0f, c, ld.c, &no_offset),
              "gemm_u8s8s32");
}

}  // namespace octavo::bench
