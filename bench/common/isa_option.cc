#include "bench/common/isa_option.h"

#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "octavo/base/error.h"

namespace octavo::bench {

void HoldToIsa(const std::string& name, char** argv) {
  if (name.empty()) return;
  const struct {
    std::string_view name;
    const char *openblas, *onednn;
  } known[] = {{"avx2", "Haswell", "AVX2"},
               {"avx512", "SkylakeX", "AVX512_CORE_VNNI"},
               {"amx", "SapphireRapids", "AVX512_CORE_AMX"}};
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
