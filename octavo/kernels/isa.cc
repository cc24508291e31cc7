#include "octavo/kernels/isa.h"

#include <cstdlib>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "octavo/base/error.h"

namespace octavo::kernels {
namespace {

#if defined(__x86_64__)
// clang 14 does not know f16c as a name for __builtin_cpu_supports.
bool HasF16c() {
  unsigned int eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

// The best set that the machine has, with the reason.
IsaChoice FromMachine() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const struct {
    const char* name;
    bool found;
  } needed[] = {
      {"avx2", __builtin_cpu_supports("avx2") != 0}, {"fma", __builtin_cpu_supports("fma") != 0}, {"f16c", HasF16c()}};
  for (const auto& feature : needed) {
    if (!feature.found) {
      return {Isa::kReference, fmt::format("the machine has no {}", feature.name),
              fmt::format("avx2: the machine has no {}", feature.name)};
    }
  }
  const bool avx512 = __builtin_cpu_supports("avx512f") != 0;
  return {Isa::kAvx2, "the machine has avx2, fma and f16c",
          avx512 ? "avx512: octavo has no kernels for it yet" : "avx512: the machine has none"};
#else
  return {Isa::kReference, "octavo has no kernels for this machine yet", "neon: octavo has no kernels for it yet"};
#endif
}

}  // namespace

std::string_view NameOf(Isa isa) { return isa == Isa::kAvx2 ? "avx2" : "reference"; }

IsaChoice ChooseIsa() {
  IsaChoice machine = FromMachine();
  const char* forced = std::getenv("OCTAVO_ISA");
  if (forced == nullptr || *forced == '\0') return machine;
  const std::string_view name(forced);
  if (name == "reference") return {Isa::kReference, "forced by OCTAVO_ISA", "avx2: OCTAVO_ISA=reference"};
  if (name == "avx2") {
    if (machine.isa == Isa::kAvx2) return {Isa::kAvx2, "forced by OCTAVO_ISA", machine.next};
    throw Error(ErrorCode::kUsage, fmt::format("OCTAVO_ISA=avx2, but {}", machine.reason),
                "unset it, or use OCTAVO_ISA=reference");
  }
  throw Error(ErrorCode::kUsage, fmt::format("OCTAVO_ISA='{}' is not an instruction set", name),
              "known: reference avx2");
}

}  // namespace octavo::kernels
