// Two models over one text in lock step: how far the second one's distributions lie from the first one's, and where in
// the model the difference grows. What `octavo compare` prints and what convert's max_kl measures. Holds a few rows of
// logits at a time, never those of a text; deterministic for any number of threads.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "octavo/eval/mean.h"
#include "octavo/eval/site_probe.h"
#include "octavo/eval/subject.h"
#include "octavo/eval/windows.h"

namespace octavo::eval {

struct Comparison {
  Mean kl;                // KL(A || B) per token, in nats
  double largest_kl = 0;  // of a token
  Mean loss_a, loss_b;
  int64_t same_top = 0;  // tokens on whose most likely successor both agree
  Mean delta_p;          // p_B(target) - p_A(target)
  double rms_delta_p = 0;
  std::vector<double> deltas;    // sorted; Percentile takes them
  bool equal = true;             // every logit, bit for bit
  std::string bits_a, bits_b;    // digests of all logits
  std::vector<SiteError> sites;  // worst first
  int64_t tokens = 0, windows = 0;

  double top_agreement() const { return tokens == 0 ? 0 : static_cast<double>(same_top) / static_cast<double>(tokens); }
};

struct CompareOptions {
  bool sites = true;  // look at the dots
  std::function<void(int64_t windows, const Comparison& so_far)> done;
};

// A check error names the first parameter whose shape differs, or that only one has.
void RequireSameShapes(const models::Model& a, const models::Model& b);

// Requires the same shapes. Logits that are no numbers end it with a numbers error.
Comparison Compare(const Subject& a, const Subject& b, const Windows& windows, ThreadPool& pool,
                   const CompareOptions& options = {});

}  // namespace octavo::eval
