// Times contenders against each other: each one is checked first, then they take turns, so that what else the machine
// does hits all alike. Used by every benchmark; knows nothing about matrices.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "octavo/kernels/limits.h"

namespace octavo::bench {

// What the check of a result found.
struct Verdict {
  bool right = true;
  double wrong_share = 0;  // of the outputs
  std::string text;        // "exact", "bits of the reference", "wrong: …"
};

enum class Limit { kFma, kMadd };

struct Contender {
  std::string name;       // "octavo", "OpenBLAS", …
  std::string family;     // "f32", "int8", …
  bool foreign = false;   // another library with threads of its own, which spin for a while after a call
  bool baseline = false;  // competes for "best fp32"
  Limit limit = Limit::kFma;
  double macs = 0;   // of one run
  double bytes = 0;  // that one run must at least move
  // Runs the work once; `turn` counts the runs, for contenders that rotate through copies of their data.
  std::function<void(int64_t turn)> run;
  // Called after run(0). A wrong result of ours ends the benchmark; a wrong result of another library is shown.
  std::function<Verdict()> check;
};

struct Timing {
  double median = 0;  // seconds of one run
  double least = 0;
  double spread = 0;  // (third quartile - first quartile) / median
  Verdict verdict;
};

struct HarnessOptions {
  int rounds = 7;
  double sample_seconds = 0.02;  // a sample repeats a short run until this much time has passed
};

// Checks and times all contenders of one shape, interleaved. Throws Error(kCheck) when one of ours is wrong.
std::vector<Timing> Race(const std::vector<Contender>& contenders, const HarnessOptions& options);

}  // namespace octavo::bench
