#include "octavo/base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "octavo/base/check.h"
#include "octavo/base/error.h"
#include "octavo/base/float_mode.h"

namespace octavo {
namespace {

// A worker spins this many times before it sleeps: about 20 microseconds, the gap between two kernels of a layer.
constexpr int kSpins = 4000;

thread_local bool inside_run = false;

// The pools that this thread made and that still live, and its float mode before the first of them. Pools may end in
// any order: the last one puts the mode back.
thread_local int pools_made_here = 0;
thread_local std::fenv_t mode_before_pools;

// Tells the core that this is a waiting loop.
void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// What ThreadPool::FetchAhead was told. Read while it changes: a mixture of two hints fetches something useless, and
// fetching never faults.
struct Ahead {
  static constexpr int64_t kPiece = 1024;  // between two looks at what is waited for: some 50 nanoseconds of memory

  std::atomic<const std::byte*> data{nullptr};
  std::atomic<int64_t> stride{0}, each{0};
  std::atomic<uint32_t> number{0};  // of the hint
};

// How far one thread is with the hint it saw last.
class Fetcher {
 public:
  Fetcher(const Ahead& ahead, int thread) : ahead_(ahead), thread_(thread) {}

  // A piece of this thread's part; false when there is none left.
  bool Fetch() {
    const uint32_t number = ahead_.number.load(std::memory_order_acquire);
    if (number != seen_) {
      seen_ = number;
      at_ = ahead_.data.load(std::memory_order_relaxed) + thread_ * ahead_.stride.load(std::memory_order_relaxed);
      left_ = ahead_.each.load(std::memory_order_relaxed);
    }
    if (left_ <= 0) return false;
    for (int64_t i = 0; i < Ahead::kPiece; i += 64) __builtin_prefetch(at_ + i, 0, 2);
    at_ += Ahead::kPiece;
    left_ -= Ahead::kPiece;
    return true;
  }

 private:
  const Ahead& ahead_;
  int thread_;
  uint32_t seen_ = 0;
  const std::byte* at_ = nullptr;
  int64_t left_ = 0;
};

// Waits until value != old: fetches ahead, spins, then sleeps.
void WaitWhileEqual(std::atomic<uint32_t>& value, uint32_t old, Fetcher& fetcher) {
  for (int i = 0; i < kSpins;) {
    if (value.load(std::memory_order_acquire) != old) return;
    if (fetcher.Fetch()) continue;
    Pause();
    ++i;
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

// A run hands out `size` numbers; whoever is awake takes the next one, the caller included. A thread that the system
// has not woken yet is so never waited for: on a busy machine that wait is a slice of the scheduler, milliseconds for
// a product of microseconds.
struct ThreadPool::Shared {
  std::atomic<uint64_t> next{0};  // run << 32 | number to take
  std::atomic<uint32_t> generation{0};
  std::atomic<uint32_t> pending{0};  // numbers that are not done
  std::atomic<bool> stop{false};
  const FunctionRef<void(int, int)>* work = nullptr;
  std::vector<std::exception_ptr> errors;
  std::vector<std::thread> threads;
  std::thread::id maker = std::this_thread::get_id();
  Ahead ahead;
  Fetcher own{ahead, 0};  // of whoever calls Run

  // Publishes a run whose number 0 is the caller's.
  void Start(const FunctionRef<void(int, int)>& what, int workers) {
    work = &what;
    pending.store(static_cast<uint32_t>(workers), std::memory_order_relaxed);
    next.store(((next.load(std::memory_order_relaxed) >> 32) + 1) << 32 | 1, std::memory_order_release);
    generation.fetch_add(1, std::memory_order_acq_rel);
    generation.notify_all();
  }

  // The next number of the current run, or -1. A number taken holds the run open: `work` stays what it was.
  int Take(int workers) {
    uint64_t at = next.load(std::memory_order_acquire);
    do {
      if (static_cast<uint32_t>(at) >= static_cast<uint32_t>(workers)) return -1;
    } while (!next.compare_exchange_weak(at, at + 1, std::memory_order_acq_rel, std::memory_order_acquire));
    return static_cast<int>(static_cast<uint32_t>(at));
  }

  void RunOne(int worker, int workers) {
    inside_run = true;
    try {
      OCTAVO_CHECK(FloatModeIsSet());
      (*work)(worker, workers);
    } catch (...) {
      errors[worker] = std::current_exception();
    }
    inside_run = false;
    if (pending.fetch_sub(1, std::memory_order_acq_rel) == 1) pending.notify_one();
  }

  void Loop(int thread, int workers) {
    SetFloatMode();
    Fetcher fetcher(ahead, thread);
    uint32_t seen = 0;
    while (true) {
      WaitWhileEqual(generation, seen, fetcher);
      seen = generation.load(std::memory_order_acquire);
      if (stop.load(std::memory_order_acquire)) return;
      for (int worker; (worker = Take(workers)) >= 0;) RunOne(worker, workers);
    }
  }
};

ThreadPool::ThreadPool(int threads) : size_(threads), shared_(std::make_unique<Shared>()) {
  if (threads < 1) ThrowUsage("a thread pool needs at least 1 thread, found {}", threads);
  if (pools_made_here++ == 0) std::fegetenv(&mode_before_pools);
  SetFloatMode();
  shared_->errors.resize(threads);
  shared_->next = static_cast<uint64_t>(threads);  // nothing to take yet
  for (int thread = 1; thread < threads; ++thread) {
    shared_->threads.emplace_back([shared = shared_.get(), thread, threads] { shared->Loop(thread, threads); });
  }
}

ThreadPool::~ThreadPool() {
  shared_->stop.store(true, std::memory_order_release);
  shared_->generation.fetch_add(1, std::memory_order_acq_rel);
  shared_->generation.notify_all();
  for (std::thread& thread : shared_->threads) thread.join();
  if (std::this_thread::get_id() == shared_->maker && --pools_made_here == 0) std::fesetenv(&mode_before_pools);
}

void ThreadPool::Run(FunctionRef<void(int, int)> work) {
  if (inside_run || size_ == 1) {
    OCTAVO_CHECK(FloatModeIsSet());
    work(0, 1);
    return;
  }
  Shared& shared = *shared_;
  shared.Start(work, size_);
  shared.RunOne(0, size_);
  for (int worker; (worker = shared.Take(size_)) >= 0;) shared.RunOne(worker, size_);
  for (uint32_t left; (left = shared.pending.load(std::memory_order_acquire)) != 0;) {
    WaitWhileEqual(shared.pending, left, shared.own);
  }
  std::exception_ptr first;
  for (std::exception_ptr& error : shared.errors) {
    if (error && !first) first = error;
    error = nullptr;
  }
  if (first) std::rethrow_exception(first);
}

void ThreadPool::ParallelFor(int64_t count, int64_t grain, FunctionRef<void(int64_t, int64_t)> work) {
  if (count <= 0) return;
  if (count <= grain || size_ == 1 || inside_run) {
    // One piece: the others are not woken for it. Calls from inside stay on this thread, as under Run.
    OCTAVO_CHECK(FloatModeIsSet());
    const struct Inside {
      bool before = std::exchange(inside_run, true);
      ~Inside() { inside_run = before; }
    } inside;
    work(0, count);
    return;
  }
  Run([&](int worker, int workers) {
    const Range range = Piece(count, grain, worker, workers);
    if (range.begin < range.end) work(range.begin, range.end);
  });
}

void ThreadPool::FetchAhead(const std::byte* data, int64_t stride, int64_t each) {
  Ahead& ahead = shared_->ahead;
  ahead.data.store(data, std::memory_order_relaxed);
  ahead.stride.store(stride, std::memory_order_relaxed);
  ahead.each.store(each, std::memory_order_relaxed);
  ahead.number.fetch_add(1, std::memory_order_release);
}

Range Piece(int64_t count, int64_t grain, int index, int pieces) {
  OCTAVO_CHECK(grain >= 1 && pieces >= 1 && index >= 0 && index < pieces);
  const int64_t grains = (count + grain - 1) / grain;
  const int64_t each = grains / pieces, extra = grains % pieces;
  const int64_t first = index * each + std::min<int64_t>(index, extra);
  const int64_t last = first + each + (index < extra ? 1 : 0);
  return {std::min(first * grain, count), std::min(last * grain, count)};
}

namespace {

// Cores that the affinity mask allows.
int AffinityCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return static_cast<int>(std::thread::hardware_concurrency());
  return CPU_COUNT(&set);
}

// Cores that the cgroup's CPU quota allows, rounded up; 0 when there is no quota.
int CgroupCores() {
  std::ifstream v2("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (v2 >> quota >> period && quota != "max" && period > 0) {
    return static_cast<int>(std::ceil(std::strtod(quota.c_str(), nullptr) / period));
  }
  std::ifstream quota_file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), period_file("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  double quota_us = 0;
  if (quota_file >> quota_us && period_file >> period && quota_us > 0 && period > 0) {
    return static_cast<int>(std::ceil(quota_us / period));
  }
  return 0;
}

}  // namespace

int ChooseThreads(int asked) {
  constexpr int kMost = 1024;
  if (asked > kMost) ThrowUsage("threads={} is over the limit of {}", asked, kMost);
  if (asked > 0) return asked;
  if (const char* text = std::getenv("OCTAVO_THREADS"); text != nullptr && *text != '\0') {
    const std::string_view view(text);
    int value = 0;
    const auto [end, error] = std::from_chars(view.data(), view.data() + view.size(), value);
    if (error != std::errc() || end != view.data() + view.size() || value < 1 || value > kMost) {
      throw Error(ErrorCode::kUsage, fmt::format("OCTAVO_THREADS='{}' is not a thread count", view),
                  fmt::format("expected a whole number from 1 to {}", kMost));
    }
    return value;
  }
  int cores = std::max(1, AffinityCores());
  if (const int quota = CgroupCores(); quota > 0) cores = std::min(cores, quota);
  return std::min(cores, kMost);
}

}  // namespace octavo
