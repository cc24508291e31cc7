// How long a new request waits for its turn: from how often requests ended of late, while some were running. Used by
// the scheduler for Busy; reads no clock, the caller says what time it is.
#pragma once

#include <algorithm>
#include <cstdint>

#include "octavo/engine/job.h"

namespace octavo::engine {

class WaitEstimate {
 public:
  // Nothing runs until now: the time before is nobody's service.
  void Idle(Clock::time_point now) { last_ = now; }

  // `requests` ended since the last call; together they took the time since then.
  void Ended(int64_t requests, Clock::time_point now) {
    if (requests <= 0) return;
    const double each = SecondsBetween(last_, now) / static_cast<double>(requests);
    last_ = now;
    if (!known_) seconds_ = each;
    known_ = true;
    constexpr double kNew = 0.1;  // weight of the latest
    for (int64_t i = 0; i < requests; ++i) seconds_ += kNew * (each - seconds_);
  }

  // With that many waiting before it: they leave one after the other. Between 1 and 60 seconds.
  double Seconds(int64_t waiting) const { return std::clamp(seconds_ * static_cast<double>(waiting + 1), 1.0, 60.0); }

 private:
  Clock::time_point last_{};
  double seconds_ = 0;  // per request
  bool known_ = false;
};

}  // namespace octavo::engine
