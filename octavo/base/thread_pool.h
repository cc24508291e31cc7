// Fork-join threads over outputs. One pool per process part, passed down by reference, never global. The caller works
// as worker 0. How many workers there are must never change a result: split outputs, never a sum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "octavo/base/function_ref.h"

namespace octavo {

class ThreadPool {
 public:
  // `threads` >= 1 counts the caller; 1 starts no thread. Sets the float mode of the calling thread.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return size_; }

  // Runs work(worker, workers) once for every worker and returns when all are done; a thread that wakes late finds its
  // part taken by another, so parts must not wait for each other to begin. The first exception (lowest worker) is
  // rethrown here. Not reentrant: a call from inside `work` runs everything on the calling worker.
  void Run(FunctionRef<void(int worker, int workers)> work);

  // Splits [0, count) into at most size() contiguous pieces, in multiples of `grain`, and runs work(begin, end) on
  // each.
  void ParallelFor(int64_t count, int64_t grain, FunctionRef<void(int64_t begin, int64_t end)> work);

  // Memory that a later run reads: worker w begins with the `each` bytes at data + w * stride. Workers that wait bring
  // their part into their caches meanwhile. Only a hint: the memory may be gone by then. Replaces the one before.
  void FetchAhead(const std::byte* data, int64_t stride, int64_t each);

 private:
  struct Shared;
  int size_;
  std::unique_ptr<Shared> shared_;
};

// How many threads to use: `asked` if positive, else OCTAVO_THREADS, else the cores that affinity and cgroups allow.
// A malformed OCTAVO_THREADS is a usage error.
int ChooseThreads(int asked);

// Piece `index` of [0, count) cut into `pieces` parts in multiples of `grain`.
struct Range {
  int64_t begin, end;
  bool operator==(const Range&) const = default;
};
Range Piece(int64_t count, int64_t grain, int index, int pieces);

}  // namespace octavo
