// Which instruction sets the kernels may use: found once at start, forced by OCTAVO_ISA=reference|avx2, passed down as
// a value. A kernel list walks its entries from the fastest and says why each earlier one declined.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace octavo::kernels {

enum class Isa : uint8_t { kReference, kAvx2 };

std::string_view NameOf(Isa isa);

struct IsaChoice {
  Isa isa;
  std::string reason;  // why this one: "cpuid: avx2 fma f16c", "forced by OCTAVO_ISA", "no avx2 in cpuid"
  std::string next;    // why not the next better one: "avx512: no kernels yet", …
};

// Reads cpuid and OCTAVO_ISA. An unknown name, or one the machine lacks, is a usage error.
IsaChoice ChooseIsa();

}  // namespace octavo::kernels
