// Internal checks: a failure is a bug of the product, never of the user. OCTAVO_CHECK is always on; OCTAVO_DCHECK is on
// in the ci and sanitizer builds and costs nothing elsewhere.
#pragma once

namespace octavo {

// Throws Error(kJob) with the expression and its place.
[[noreturn]] void CheckFailed(const char* expression, const char* file, int line);

}  // namespace octavo

#define OCTAVO_CHECK(condition)                              \
  do {                                                       \
    if (!(condition)) [[unlikely]]                           \
      ::octavo::CheckFailed(#condition, __FILE__, __LINE__); \
  } while (false)

#ifdef OCTAVO_CHECKS
#define OCTAVO_DCHECK(condition) OCTAVO_CHECK(condition)
#else
#define OCTAVO_DCHECK(condition) \
  do {                           \
  } while (false && (condition))
#endif
