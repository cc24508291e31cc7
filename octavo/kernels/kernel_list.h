// An ordered list of implementations of one product, best first; each says why it declines, or nothing when it takes
// the product. Used by the integer families.
#pragma once

#include <string>
#include <string_view>

#include "octavo/base/thread_pool.h"
#include "octavo/kernels/isa.h"
#include "octavo/kernels/matmul_f32.h"

namespace octavo::kernels {

template <typename Args>
struct KernelEntry {
  std::string_view name;
  std::string_view (*decline)(Isa isa, const Args& args);
  void (*run)(ThreadPool& pool, Isa isa, const Args& args);
};

// The first entry that takes the product, and what the ones before it said. The last entry takes everything.
template <typename Args, size_t kCount>
KernelChoice ChooseFrom(const KernelEntry<Args> (&list)[kCount], Isa isa, const Args& args) {
  KernelChoice choice;
  for (const KernelEntry<Args>& entry : list) {
    const std::string_view reason = entry.decline(isa, args);
    if (reason.empty()) {
      choice.name = entry.name;
      break;
    }
    choice.declined.push_back(std::string(entry.name) + ": " + std::string(reason));
  }
  return choice;
}

template <typename Args, size_t kCount>
void RunFrom(const KernelEntry<Args> (&list)[kCount], ThreadPool& pool, Isa isa, const Args& args) {
  for (const KernelEntry<Args>& entry : list) {
    if (entry.decline(isa, args).empty()) return entry.run(pool, isa, args);
  }
}

}  // namespace octavo::kernels
