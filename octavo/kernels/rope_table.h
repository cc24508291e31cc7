// Rotary position tables: the frequencies of each scaling scheme, and the cosines and sines of integer positions.
// Everything is computed in double from the position itself and rounded once to f32, never step by step, so that a row
// of the table depends on nothing but its position. Made once per model; ops/rope keeps the table.
#pragma once

#include <cstdint>
#include <vector>

#include "octavo/base/thread_pool.h"
#include "octavo/kernels/isa.h"

namespace octavo::kernels {

enum class RopeScaling : uint8_t { kNone, kLinear, kLlama3, kYarn };

struct RopeConfig {
  int64_t rotary_dim = 0;      // features that take part, even
  double max_timescale = 1e4;  // "theta", "base"
  double min_timescale = 1;
  int64_t rotated_pairs = -1;  // pairs from this one on stand still (frequency 0); -1: all turn
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;                                 // how much longer than in training
  int64_t original_positions = 0;                    // llama3, yarn: positions in training
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3
  double beta_fast = 32, beta_slow = 1;              // yarn: turns over the original positions
  bool truncate = true;                              // yarn: whole-number bounds of the ramp
  double attention_factor = 1;                       // multiplies cosines and sines (YarnMscale, or 1)
};

struct RopeFrequencies {
  std::vector<double> inverse;  // [rotary_dim / 2], radians per position; relative error below 1e-14
  double attention_factor = 1;
};
RopeFrequencies MakeRopeFrequencies(const RopeConfig& config);

// 0.1 * mscale * ln(factor) + 1, and 1 for factors of at most 1.
double YarnMscale(double factor, double mscale);

// Row i of cos and sin ([count, rotary_dim / 2]) is for position first + i.
void FillRopeTable(ThreadPool& pool, Isa isa, const RopeFrequencies& frequencies, int64_t first, int64_t count,
                   float* cos, float* sin);

}  // namespace octavo::kernels
