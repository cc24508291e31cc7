#include "octavo/kernels/isa.h"

#include <cstdlib>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "octavo/base/error.h"

namespace octavo::kernels {
namespace {

constexpr Isa kSets[] = {Isa::kReference, Isa::kAvx2, Isa::kAvx512, Isa::kAmx};

#if defined(__x86_64__)
// What AMX needs and the machine lacks. The tiles are 8 KiB that the system saves for a process only if it asks
// (arch_prctl); one grant holds for all threads and may be asked for again.
std::string MissingAmx() {
  unsigned int eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0 || (edx >> 24 & 1) == 0)
    return "the machine has no amx_tile";
  if ((edx >> 25 & 1) == 0) return "the machine has no amx_int8";
  unsigned int low = 0, high = 0;  // kAvx512 is there, so xgetbv is
  asm("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  if ((low >> 17 & 3) != 3) return "the system does not save the tiles";
#if defined(__linux__) && defined(SYS_arch_prctl)
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  if (syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0) return {};
#endif
  return "the system does not grant the tiles";
}
#endif

// What a set needs and the machine lacks, or nothing.
std::string Missing(Isa isa) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  // clang 14 does not know f16c as a name for __builtin_cpu_supports.
  unsigned int eax = 0, ebx = 0, ecx = 0, edx = 0;
  const bool f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
  // These ask the system too: without its saving the wide registers (xgetbv) they are false.
  const struct {
    Isa isa;
    const char* name;
    bool found;
  } needed[] = {{Isa::kAvx2, "avx2", __builtin_cpu_supports("avx2") != 0},
                {Isa::kAvx2, "fma", __builtin_cpu_supports("fma") != 0},
                {Isa::kAvx2, "f16c", f16c},
                {Isa::kAvx512, "avx512f", __builtin_cpu_supports("avx512f") != 0},
                {Isa::kAvx512, "avx512bw", __builtin_cpu_supports("avx512bw") != 0},
                {Isa::kAvx512, "avx512dq", __builtin_cpu_supports("avx512dq") != 0},
                {Isa::kAvx512, "avx512vl", __builtin_cpu_supports("avx512vl") != 0},
                {Isa::kAvx512, "avx512vnni", __builtin_cpu_supports("avx512vnni") != 0}};
  for (const auto& feature : needed) {
    if (feature.isa <= isa && !feature.found) return fmt::format("the machine has no {}", feature.name);
  }
  return isa == Isa::kAmx ? MissingAmx() : std::string();
#else
  return isa == Isa::kReference ? "" : "octavo has no kernels for this machine yet";
#endif
}

// The best set that the machine has, with the reason.
IsaChoice FromMachine() {
  const std::string avx2 = Missing(Isa::kAvx2), avx512 = Missing(Isa::kAvx512);
  const std::string amx = avx512.empty() ? Missing(Isa::kAmx) : avx512;
  if (!avx2.empty()) return {Isa::kReference, avx2, "avx2: " + avx2};
  if (!avx512.empty()) return {Isa::kAvx2, "the machine has avx2, fma and f16c", "avx512: " + avx512};
  if (!amx.empty()) return {Isa::kAvx512, "the machine has avx512 f, bw, dq, vl and vnni", "amx: " + amx};
  return {Isa::kAmx, "the machine has amx_int8 and avx512 vnni", "better: octavo knows none"};
}

}  // namespace

std::string_view NameOf(Isa isa) {
  constexpr std::string_view kNames[] = {"reference", "avx2", "avx512", "amx"};
  return kNames[static_cast<size_t>(isa)];
}

std::vector<Isa> AvailableIsas() {
  const Isa best = FromMachine().isa;
  std::vector<Isa> available;
  for (const Isa isa : kSets) {
    if (isa <= best) available.push_back(isa);
  }
  return available;
}

IsaChoice ChooseIsa() {
  IsaChoice machine = FromMachine();
  const char* forced = std::getenv("OCTAVO_ISA");
  if (forced == nullptr || *forced == '\0') return machine;
  const std::string_view name(forced);
  for (const Isa isa : kSets) {
    if (name != NameOf(isa)) continue;
    if (isa > machine.isa) {
      throw Error(ErrorCode::kUsage, fmt::format("OCTAVO_ISA={}, but {}", name, Missing(isa)),
                  fmt::format("unset it, or use OCTAVO_ISA={}", NameOf(machine.isa)));
    }
    if (isa == machine.isa) return {isa, "forced by OCTAVO_ISA", machine.next};
    const Isa next = static_cast<Isa>(static_cast<int>(isa) + 1);
    return {isa, "forced by OCTAVO_ISA", fmt::format("{}: OCTAVO_ISA={}", NameOf(next), name)};
  }
  throw Error(ErrorCode::kUsage, fmt::format("OCTAVO_ISA='{}' is not an instruction set", name),
              "known: reference avx2 avx512 amx");
}

}  // namespace octavo::kernels
