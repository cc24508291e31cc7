// How the panels of weights that a few rows stream are handed out to workers: each begins with a run of its own, long
// enough for the prefetchers and known before the product starts (so that it can be fetched ahead); the rest is taken
// in runs that shrink, so that nobody is left with a long one while the others wait. Who gets which panels never
// changes a bit.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "octavo/base/thread_pool.h"

namespace octavo::kernels {

class PanelRuns {
 public:
  static constexpr int64_t kLeastBytes = int64_t{32} << 10;  // of a run: about a microsecond of a core's memory

  // Runs of whole grains.
  PanelRuns(int64_t panels, int64_t panel_bytes, int64_t grain, int workers)
      : panels_(panels),
        least_(std::max(kLeastBytes / std::max<int64_t>(panel_bytes, 1) / grain, int64_t{1}) * grain),
        share_(2 * workers),
        first_(RunAt(0)),
        next_(std::min(first_ * workers, panels)) {}

  // The first run of a worker, to be asked for once by each; may be empty.
  Range First(int worker) const {
    return {std::min(worker * first_, panels_), std::min((worker + 1) * first_, panels_)};
  }

  // One of the rest, or an empty one when all are taken.
  Range Take() {
    int64_t begin = next_.load(std::memory_order_relaxed), end = begin;
    do {
      if (begin >= panels_) return {panels_, panels_};
      end = std::min(begin + RunAt(begin), panels_);
    } while (!next_.compare_exchange_weak(begin, end, std::memory_order_relaxed));
    return {begin, end};
  }

 private:
  int64_t RunAt(int64_t begin) const { return std::max((panels_ - begin) / share_ / least_, int64_t{1}) * least_; }

  int64_t panels_, least_, share_, first_;
  std::atomic<int64_t> next_;
};

}  // namespace octavo::kernels
