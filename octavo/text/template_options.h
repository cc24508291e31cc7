// How a chat template may run: the bounds of the sandbox, and the clock it sees.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace octavo::text {

// Passing any of these is a TemplateError of kind LimitError, never a crash or a hang.
struct RenderLimits {
  int64_t steps = 1'000'000;                      // statements; parts of expressions count for less
  size_t output_bytes = size_t{8} << 20;          // also of any single string on the way
  int64_t range = 100'000;                        // elements of range()
  int depth = 64;                                 // macros that call macros
  std::chrono::milliseconds processor_time{100};  // of the calling thread
};

// What strftime_now() formats.
struct LocalTime {
  int year = 1970, month = 1, day = 1;  // from one
  int hour = 0, minute = 0, second = 0, microsecond = 0;
};

struct RenderOptions {
  RenderLimits limits;
  std::optional<LocalTime> now;  // none: the clock of the machine
};

}  // namespace octavo::text
