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

// Reads of memory with all threads, in 1e9 bytes per second, whenever they are asked for: a virtual machine is moved
// between cores that share their way to memory and cores that do not, so a share of the reads is only worth something
// when both are measured within the same tenths of a second.
class ReadMeter {
 public:
  ReadMeter(ThreadPool& pool, Isa isa);
  ~ReadMeter();
  ReadMeter(const ReadMeter&) = delete;
  ReadMeter& operator=(const ReadMeter&) = delete;

  // The fastest of some ways to read 256 MiB: about 25 milliseconds.
  double Read();

 private:
  ThreadPool& pool_;
  bool avx2_;
  void* data_;
};

// Runs each measurement `repeats` times and keeps the best.
MachineLimits MeasureLimits(ThreadPool& pool, Isa isa, int repeats = 5);

}  // namespace octavo::kernels
