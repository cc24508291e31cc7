// What this machine can do at best, measured in about a second: the denominators of every "share of the limit" that
// `octavo doctor` and the benchmarks print. Not a kernel anyone computes with.
#pragma once

#include "octavo/base/thread_pool.h"
#include "octavo/kernels/isa.h"

namespace octavo::kernels {

struct MachineLimits {
  double fma_gmacs = 0;      // f32 multiply-adds from registers, 1e9 per second, all threads together
  double madd_gmacs = 0;     // multiply-adds with int32 sums (vpmaddwd + vpaddd, vpdpbusd or tdpbssd), the int8 limit
  double read_gb_per_s = 0;  // reading memory far larger than the caches
};

// Reads of memory over `seconds`, in 1e9 bytes per second, the median of passes over 256 MiB: what work that lasts can
// count on. A virtual machine may be granted twice of that for a moment, which is what the best of a few passes shows.
double MeasureSteadyReads(ThreadPool& pool, Isa isa, double seconds);

// Runs each measurement `repeats` times and keeps the best.
MachineLimits MeasureLimits(ThreadPool& pool, Isa isa, int repeats = 5);

}  // namespace octavo::kernels
