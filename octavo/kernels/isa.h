// Which instruction sets the kernels may use: found once at start, forced by OCTAVO_ISA=reference|avx2|avx512|amx,
// passed down as a value. The sets are ordered, and a family without kernels for a set uses those of the one below: all
// give the same bits. A kernel list walks its entries from the fastest and says why each earlier one declined.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace octavo::kernels {

// kAvx512 means AVX-512 F, BW, DQ, VL and VNNI; the first machines with AVX-512 lack VNNI and count as kAvx2.
// kAmx means AMX tiles with int8 products on top of kAvx512; the system must grant the process their state.
enum class Isa : uint8_t { kReference, kAvx2, kAvx512, kAmx };

std::string_view NameOf(Isa isa);

struct IsaChoice {
  Isa isa;
  std::string reason;  // why this one: "the machine has …", "forced by OCTAVO_ISA"
  std::string next;    // why not the next better one: "avx512: the machine has no avx512vnni", …
};

// Reads cpuid (and whether the system saves the registers) and OCTAVO_ISA; asks the system for the tiles of AMX. An
// unknown name, or one the machine lacks, is a usage error.
IsaChoice ChooseIsa();

// Every set that this machine has, ascending, whatever OCTAVO_ISA says: for tests that compare them.
std::vector<Isa> AvailableIsas();

}  // namespace octavo::kernels
