// How far a long job is: a bar at the bottom of a terminal, a line at most every 10 seconds in a file, nothing when
// quiet. Made by the job that knows the total; Update may be called as often as one likes, from one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "octavo/base/log.h"

namespace octavo {

class Progress {
 public:
  // Seconds on a clock that never goes back.
  using Clock = std::function<double()>;

  // "title  [#####     ]  512/1024 unit  50 %  12 s left". A total of 0 means unknown: no bar, no share, no time left.
  Progress(Log& log, std::string title, int64_t total, std::string unit = "", Clock clock = SteadySeconds);
  // Takes the bar away. Finish() before it says how it went.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Update(int64_t done);
  // One last line with the time it took, in a terminal and in a file alike.
  void Finish();

  static double SteadySeconds();

 private:
  std::string Text(double now, bool bar) const;

  Log& log_;
  std::string title_, unit_;
  int64_t total_;
  Clock clock_;
  double start_, last_;
  int64_t done_ = 0;
  bool finished_ = false;
};

// "850 ms", "12 s", "3 min 05 s", "2 h 04 min".
std::string DurationText(double seconds);

}  // namespace octavo
