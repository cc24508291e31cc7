// What the figures of quantization health warn of, judged by the limits of docs/formats/run.md and told in few lines:
// one per operand and kind of trouble, however many sites have it. Used by the trainer's log.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "octavo/quant/health.h"

namespace octavo::quant {

enum class HealthIssue : uint8_t {
  kNonFinite,  // any value that is NaN or infinite
  kSaturated,  // more than 0.1 % clipped, where the scale does not follow the values
  kFlushed,    // more than 5 % rounded to zero
  kNoisy,      // signal-to-noise ratio below 20 dB (8 bits) or 12 dB (fewer)
  kGrown,      // the largest magnitude is ten times that of at most 100 steps before
};

struct HealthWarning {
  HealthKey key;
  Format format;
  HealthIssue issue;
  double value;  // a count, a share, dB, a factor
};

// `before`: largest magnitudes of an earlier step, for kGrown.
std::vector<HealthWarning> FindHealthWarnings(const HealthRecords& records,
                                              const std::map<HealthKey, float>& before = {});

// "decoder/layers_3/mlp/wo grad_lhs.lhs (float8_e5m2): flushed to zero 7.3 % (limit 5 %)" for one site, and for several
// "grad_lhs.lhs (float8_e5m2) of 12 sites: flushed to zero up to 7.3 % (limit 5 %), most at decoder/layers_3/mlp/wo".
std::vector<std::string> WarningLines(const std::vector<HealthWarning>& warnings);

}  // namespace octavo::quant
