#include "octavo/base/progress.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

namespace octavo {
namespace {

constexpr double kBarEvery = 0.1;    // seconds; an eye sees no more
constexpr double kLineEvery = 10.0;  // seconds; a log should stay readable
constexpr int kBarWidth = 20;

}  // namespace

double Progress::SteadySeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Progress::Progress(Log& log, std::string title, int64_t total, std::string unit, Clock clock)
    : log_(log), title_(std::move(title)), unit_(std::move(unit)), total_(total), clock_(std::move(clock)) {
  start_ = clock_();
  last_ = start_;
  if (log_.options().status_line) log_.Status(Text(start_, true));
}

Progress::~Progress() { log_.Status(""); }

void Progress::Update(int64_t done) {
  done_ = done;
  const double now = clock_();
  const bool bar = log_.options().status_line;
  if (now - last_ < (bar ? kBarEvery : kLineEvery)) return;
  last_ = now;
  if (bar) {
    log_.Status(Text(now, true));
  } else {
    log_.Info("{}", Text(now, false));
  }
}

void Progress::Finish() {
  if (std::exchange(finished_, true)) return;
  log_.Status("");
  const std::string unit = unit_.empty() ? "" : " " + unit_;
  log_.Info("{}  {}{}  {}", title_, done_, unit, DurationText(clock_() - start_));
}

std::string Progress::Text(double now, bool bar) const {
  const std::string unit = unit_.empty() ? "" : " " + unit_;
  if (total_ <= 0) return fmt::format("{}  {}{}  {}", title_, done_, unit, DurationText(now - start_));
  const double share = std::clamp(static_cast<double>(done_) / static_cast<double>(total_), 0.0, 1.0);
  std::string text = title_ + "  ";
  if (bar) {
    const int filled = static_cast<int>(share * kBarWidth);
    text += fmt::format("[{:<{}}]  ", std::string(static_cast<size_t>(filled), '#'), kBarWidth);
  }
  text += fmt::format("{}/{}{}  {} %", done_, total_, unit, static_cast<int>(share * 100));
  if (done_ > 0 && share < 1.0 && now > start_) {
    text += fmt::format("  {} left", DurationText((now - start_) * (1.0 - share) / share));
  }
  return text;
}

std::string DurationText(double seconds) {
  if (!(seconds >= 0) || seconds > 1e9) return "?";
  if (seconds < 0.9995) return fmt::format("{} ms", std::lround(seconds * 1000));
  const int64_t whole = std::llround(seconds);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

}  // namespace octavo
