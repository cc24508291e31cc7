// The floating-point mode of a compute thread: round to nearest, flush-to-zero, denormals-are-zero. Every number the
// product computes depends on it, so the thread pool sets it at thread start and checks it at each run.
#pragma once

namespace octavo {

// Sets the mode of the calling thread. Does nothing on machines without such a mode.
void SetFloatMode();

// True when the calling thread is in the mode.
bool FloatModeIsSet();

// Sets the mode and puts the previous one back at the end of the scope.
class ScopedFloatMode {
 public:
  ScopedFloatMode();
  ~ScopedFloatMode();
  ScopedFloatMode(const ScopedFloatMode&) = delete;
  ScopedFloatMode& operator=(const ScopedFloatMode&) = delete;

 private:
  unsigned int saved_;
};

// The opposite, for reading and writing files: subnormal numbers stay what the file says, whatever thread asks.
class ScopedSubnormals {
 public:
  ScopedSubnormals();
  ~ScopedSubnormals();
  ScopedSubnormals(const ScopedSubnormals&) = delete;
  ScopedSubnormals& operator=(const ScopedSubnormals&) = delete;

 private:
  unsigned int saved_;
};

}  // namespace octavo
