#include "octavo/kernels/limits.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/base/function_ref.h"
#include "octavo/kernels/limits_loops.h"

namespace octavo::kernels {
namespace {

constexpr int64_t kReadBytes = int64_t{256} << 20, kReadPiece = int64_t{1} << 20;

// Plain loops for machines without a vector version: what the reference kernels can hope for.
double FmaLoopPlain(int64_t rounds) {
  volatile float x = 0.5f;
  float a = x, b = x, c = x, d = x;
  for (int64_t i = 0; i < rounds; ++i) {
    a = a * x + 1.0f, b = b * x + 1.0f, c = c * x + 1.0f, d = d * x + 1.0f;
  }
  x = a + b + c + d;
  return static_cast<double>(rounds) * 4;
}

double ReadLoopPlain(const float* data, int64_t bytes) {
  const auto* words = reinterpret_cast<const uint64_t*>(data);
  uint64_t a = 0, b = 0, c = 0, d = 0;
  for (int64_t i = 0; i + 4 <= bytes / 8; i += 4)
    a ^= words[i], b ^= words[i + 1], c ^= words[i + 2], d ^= words[i + 3];
  volatile uint64_t sink = a ^ b ^ c ^ d;
  (void)sink;
  return static_cast<double>(bytes);
}

double ReadPiece(const float* data, [[maybe_unused]] int64_t ahead, [[maybe_unused]] bool avx2) {
#if defined(__x86_64__)
  if (avx2) return internal::ReadLoopAvx2(data, kReadPiece, ahead);
#endif
  return ReadLoopPlain(data, kReadPiece);
}

// Best rate over the repeats, in 1e9 units per second, summed over all workers.
double BestRate(ThreadPool& pool, int repeats, FunctionRef<double(int worker, int workers)> work) {
  double best = 0;
  std::vector<double> done(static_cast<size_t>(pool.size()));
  for (int i = 0; i < repeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    pool.Run([&](int worker, int workers) { done[static_cast<size_t>(worker)] = work(worker, workers); });
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    double total = 0;
    for (double d : done) total += d;
    best = std::max(best, total / seconds * 1e-9);
  }
  return best;
}

// Bytes to fetch ahead: processors differ in how far their own fetching goes.
constexpr int64_t kAheads[] = {0, 1024, 4096};

// One pass over kReadBytes, GB/s. Pieces from a counter, so that a worker that is held up does not hold up the rest.
double ReadPass(ThreadPool& pool, const void* data, int64_t ahead, bool avx2) {
  std::atomic<int64_t> next = 0;
  return BestRate(pool, 1, [&](int, int) {
    double done = 0;
    for (int64_t i; (i = next.fetch_add(kReadPiece)) < kReadBytes;) {
      done += ReadPiece(static_cast<const float*>(data) + i / 4, ahead, avx2);
    }
    return done;
  });
}

}  // namespace

// Memory with huge pages where the system grants them, written once.
ReadMeter::ReadMeter(ThreadPool& pool, Isa isa) : pool_(pool), avx2_(isa >= Isa::kAvx2) {
  data_ = mmap(nullptr, kReadBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data_ == MAP_FAILED) throw Error(ErrorCode::kJob, "cannot get 256 MiB to measure the read bandwidth");
  madvise(data_, kReadBytes, MADV_HUGEPAGE);
  std::memset(data_, 1, kReadBytes);
}

ReadMeter::~ReadMeter() { munmap(data_, kReadBytes); }

double ReadMeter::Read() {
  double rate = 0;
  for (const int64_t ahead : kAheads) rate = std::max(rate, ReadPass(pool_, data_, ahead, avx2_));
  return rate;
}

MachineLimits MeasureLimits(ThreadPool& pool, Isa isa, int repeats) {
  MachineLimits limits;
  constexpr int64_t kRounds = 3'000'000;
  const bool avx2 = isa >= Isa::kAvx2, avx512 = isa >= Isa::kAvx512;
  limits.fma_gmacs = BestRate(pool, repeats, [&](int, int) {
#if defined(__x86_64__)
    if (avx512) return internal::FmaLoopAvx512(kRounds);
    if (avx2) return internal::FmaLoopAvx2(kRounds);
#endif
    return FmaLoopPlain(kRounds);
  });
#if defined(__x86_64__)
  if (avx2) {
    limits.madd_gmacs = BestRate(pool, repeats, [&](int, int) {
      if (isa >= Isa::kAmx) return internal::TileLoopAmx(kRounds / 8);
      return avx512 ? internal::DotLoopAvx512(kRounds) : internal::MaddLoopAvx2(kRounds);
    });
  }
#endif
  ReadMeter reads(pool, isa);
  for (int i = 0; i < repeats; ++i) limits.read_gb_per_s = std::max(limits.read_gb_per_s, reads.Read());
  return limits;
}

}  // namespace octavo::kernels
