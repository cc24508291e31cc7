#include "octavo/base/float_mode.h"

#include <cfenv>

#include "octavo/base/check.h"

namespace octavo {
namespace {

#if defined(__x86_64__)
constexpr unsigned int kFlushBits = 0x8000 | 0x0040;  // FTZ | DAZ
constexpr unsigned int kRoundBits = 0x6000;           // 0 = to nearest

// Not through fegetenv, which reads and writes the x87 unit too: the check runs before every parallel loop.
unsigned int ReadControl() { return __builtin_ia32_stmxcsr(); }
void WriteControl(unsigned int control) { __builtin_ia32_ldmxcsr(control); }
#elif defined(__aarch64__)
constexpr unsigned int kFlushBits = 1u << 24;  // FZ flushes inputs and results
constexpr unsigned int kRoundBits = 3u << 22;

unsigned int ReadControl() {
  std::fenv_t env;
  std::fegetenv(&env);
  return env.__fpcr;
}

void WriteControl(unsigned int control) {
  std::fenv_t env;
  std::fegetenv(&env);
  env.__fpcr = control;
  std::fesetenv(&env);
}
#else
#error "no floating-point mode known for this machine"
#endif

}  // namespace

void SetFloatMode() { WriteControl((ReadControl() & ~kRoundBits) | kFlushBits); }

bool FloatModeIsSet() {
  const unsigned int control = ReadControl();
  return (control & kFlushBits) == kFlushBits && (control & kRoundBits) == 0;
}

ScopedFloatMode::ScopedFloatMode() : saved_(ReadControl()) { SetFloatMode(); }

ScopedFloatMode::~ScopedFloatMode() { WriteControl(saved_); }

ScopedSubnormals::ScopedSubnormals() : saved_(ReadControl()) { WriteControl(saved_ & ~(kRoundBits | kFlushBits)); }

ScopedSubnormals::~ScopedSubnormals() { WriteControl(saved_); }

}  // namespace octavo
