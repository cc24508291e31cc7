// Runs every fast kernel family against its reference on a few odd shapes: what `octavo doctor --self-test` prints. A
// second or so; finds a machine, a compiler or a build that computes other bits. The unit tests go deeper.
#pragma once

#include <string>
#include <vector>

#include "octavo/base/thread_pool.h"
#include "octavo/kernels/isa.h"

namespace octavo::kernels {

struct SelfTestResult {
  std::string name;  // the family
  Isa isa;           // compared with the reference
  bool passed;
  std::string detail;  // what was compared, or what differs
};

// One result per family, in the order of the table in selftest.cc. Never throws for a failing kernel.
std::vector<SelfTestResult> RunSelfTests(ThreadPool& pool, Isa isa);

}  // namespace octavo::kernels
