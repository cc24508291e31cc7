#include "octavo/kernels/isa.h"

#include <cstdlib>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "octavo/base/error.h"

namespace octavo::kernels {
namespace {

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
  return {};
#else
  return isa == Isa::kReference ? "" : "octavo has no kernels for this machine yet";
#endif
}

// The best set that the machine has, with the reason.
IsaChoice FromMachine() {
  const std::string avx2 = Missing(Isa::kAvx2), avx512 = Missing(Isa::kAvx512);
  if (!avx2.empty()) return {Isa::kReference, avx2, "avx2: " + avx2};
  if (!avx512.empty()) return {Isa::kAvx2, "the machine has avx2, fma and f16c", "avx512: " + avx512};
  return {Isa::kAvx512, "the machine has avx512 f, bw, dq, vl and vnni", "amx: octavo has no kernels for it yet"};
}

}  // namespace

std::string_view NameOf(Isa isa) {
  constexpr std::string_view kNames[] = {"reference", "avx2", "avx512"};
  return kNames[static_cast<size_t>(isa)];
}

std::vector<Isa> AvailableIsas() {
  std::vector<Isa> available;
  for (const Isa isa : {Isa::kReference, Isa::kAvx2, Isa::kAvx512}) {
    if (isa <= FromMachine().isa) available.push_back(isa);
  }
  return available;
}

IsaChoice ChooseIsa() {
  IsaChoice machine = FromMachine();
  const char* forced = std::getenv("OCTAVO_ISA");
  if (forced == nullptr || *forced == '\0') return machine;
  const std::string_view name(forced);
  for (const Isa isa : {Isa::kReference, Isa::kAvx2, Isa::kAvx512}) {
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
              "known: reference avx2 avx512");
}

}  // namespace octavo::kernels
