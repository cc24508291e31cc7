#include "bench/common/isa_option.h"

#include <cblas.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "octavo/base/error.h"
#include "octavo/kernels/isa.h"

namespace octavo::bench {
namespace {

// OpenBLAS knows processors by name and takes its oldest kernels for one that is newer than itself: a peer at a fifth
// of its speed. It is told the best it has for the instructions of the machine.
void HelpOpenBlas(char** argv) {
  const kernels::Isa best = kernels::AvailableIsas().back();
  if (std::getenv("OPENBLAS_CORETYPE") != nullptr || best < kernels::Isa::kAvx2) return;
  if (std::string_view(openblas_get_corename()) != "Prescott") return;
  setenv("OPENBLAS_CORETYPE", best >= kernels::Isa::kAvx512 ? "SkylakeX" : "Haswell", 1);
  execv("/proc/self/exe", argv);
}

}  // namespace

void HoldToIsa(const std::string& name, char** argv) {
  if (name.empty()) return HelpOpenBlas(argv);
  const struct {
    std::string_view name;
    const char *openblas, *onednn;
  } known[] = {
      {"avx2", "Haswell", "AVX2"}, {"avx512", "SkylakeX", "AVX512_CORE_VNNI"}, {"amx", "SkylakeX", "AVX512_CORE_AMX"}};
  for (const auto& isa : known) {
    if (name != isa.name) continue;
    const char* now = std::getenv("OCTAVO_BENCH_ISA");
    if (now != nullptr && name == now) return;
    setenv("OCTAVO_BENCH_ISA", name.c_str(), 1);
    setenv("OCTAVO_ISA", name.c_str(), 1);
    setenv("OPENBLAS_CORETYPE", isa.openblas, 1);
    setenv("DNNL_MAX_CPU_ISA", isa.onednn, 1);
    execv("/proc/self/exe", argv);
    throw Error(ErrorCode::kJob, "cannot start the benchmark again for --isa");
  }
  throw Error(ErrorCode::kUsage, fmt::format("--isa '{}' is not an instruction set", name), "known: avx2 avx512 amx");
}

}  // namespace octavo::bench
