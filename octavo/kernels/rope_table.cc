#include "octavo/kernels/rope_table.h"

#include <algorithm>
#include <cmath>

#include "octavo/base/error.h"
#include "octavo/kernels/math.h"
#include "octavo/kernels/rope_rows.h"

namespace octavo::kernels {
namespace {

constexpr double kTwoPi = 0x1.921fb54442d18p+2;
constexpr double kLn2Hi = 0x1.62e42fefa3800p-1;  // 42 bits, so that n * kLn2Hi is exact
constexpr double kLn2Lo = 0x1.ef35793c76730p-45;

// Natural logarithm and exponential of ordinary numbers, good to 2 ulp. Not those of the C library: its last bits
// change from version to version, and a frequency's last bit shows in the table at high positions.
double Log64(double x) {
  int exponent = 0;
  double m = std::frexp(x, &exponent);  // in [1/2, 1)
  if (m < 0.70710678118654757) m *= 2, --exponent;
  const double s = (m - 1) / (m + 1), square = s * s;
  double series = 0;
  for (int k = 25; k >= 3; k -= 2) series = Fma(series, square, 1.0 / k);
  const double log_m = Fma(2 * s * square, series, 2 * s);
  return Fma(static_cast<double>(exponent), kLn2Hi, Fma(static_cast<double>(exponent), kLn2Lo, log_m));
}

double Exp64(double x) {
  const double n = std::nearbyint(x * (1 / (kLn2Hi + kLn2Lo)));
  const double r = Fma(-n, kLn2Lo, Fma(-n, kLn2Hi, x));
  double series = 1;
  for (int k = 15; k >= 1; --k) series = Fma(series, r / k, 1.0);
  return std::ldexp(series, static_cast<int>(n));
}

void CheckConfig(const RopeConfig& c) {
  if (c.rotary_dim < 0 || c.rotary_dim % 2 != 0) {
    ThrowUsage("RoPE: rotary_dim is {}, expected an even number of features", c.rotary_dim);
  }
  if (!(c.max_timescale > 0) || !(c.min_timescale > 0) || !std::isfinite(c.max_timescale / c.min_timescale)) {
    ThrowUsage("RoPE: timescales {} … {}, expected positive numbers", c.min_timescale, c.max_timescale);
  }
  if (c.rotated_pairs > c.rotary_dim / 2) {
    ThrowUsage("RoPE: {} of {} pairs are to turn", c.rotated_pairs, c.rotary_dim / 2);
  }
  if (!std::isfinite(c.attention_factor)) ThrowUsage("RoPE: attention factor {}", c.attention_factor);
  if (c.scaling == RopeScaling::kNone) return;
  if (!(c.factor > 0) || !std::isfinite(c.factor)) {
    ThrowUsage("RoPE: scaling factor is {}, expected a positive number", c.factor);
  }
  if (c.scaling == RopeScaling::kLinear) return;
  if (c.original_positions <= 0) {
    ThrowUsage("RoPE: llama3 and yarn scaling need the number of positions in training, found {}",
               c.original_positions);
  }
  if (c.scaling == RopeScaling::kLlama3 && !(c.high_freq_factor > c.low_freq_factor && c.low_freq_factor > 0)) {
    ThrowUsage("RoPE: llama3 frequency factors {} (low) and {} (high), expected 0 < low < high", c.low_freq_factor,
               c.high_freq_factor);
  }
  if (c.scaling == RopeScaling::kYarn && !(c.beta_fast >= c.beta_slow && c.beta_slow > 0)) {
    ThrowUsage("RoPE: yarn beta_fast {} and beta_slow {}, expected beta_fast >= beta_slow > 0", c.beta_fast,
               c.beta_slow);
  }
}

// Long waves are stretched by the factor, short ones left alone, those between blended.
double Llama3(const RopeConfig& c, double frequency) {
  const double turns = static_cast<double>(c.original_positions) * frequency / kTwoPi;  // original / wavelength
  if (turns < c.low_freq_factor) return frequency / c.factor;
  if (turns > c.high_freq_factor) return frequency;
  const double smooth = (turns - c.low_freq_factor) / (c.high_freq_factor - c.low_freq_factor);
  return (1 - smooth) * frequency / c.factor + smooth * frequency;
}

struct Ramp {
  double low, high;
};

// Between which pairs yarn passes from untouched to stretched.
Ramp YarnRamp(const RopeConfig& c) {
  const double dim = static_cast<double>(c.rotary_dim);
  const auto pair_of = [&](double turns) {
    return dim * Log64(static_cast<double>(c.original_positions) / (turns * kTwoPi)) / (2 * Log64(c.max_timescale));
  };
  Ramp ramp{pair_of(c.beta_fast), pair_of(c.beta_slow)};
  if (c.truncate) ramp = {std::floor(ramp.low), std::ceil(ramp.high)};
  ramp = {std::max(ramp.low, 0.0), std::min(ramp.high, dim - 1)};
  if (ramp.low == ramp.high) ramp.high += 0.001;
  return ramp;
}

}  // namespace

double YarnMscale(double factor, double mscale) { return factor <= 1 ? 1.0 : 0.1 * mscale * Log64(factor) + 1.0; }

RopeFrequencies MakeRopeFrequencies(const RopeConfig& c) {
  CheckConfig(c);
  const int64_t pairs = c.rotary_dim / 2;
  RopeFrequencies out{std::vector<double>(pairs), c.attention_factor};
  const double log_ratio = Log64(c.max_timescale / c.min_timescale);
  const Ramp ramp = c.scaling == RopeScaling::kYarn && pairs > 0 ? YarnRamp(c) : Ramp{0, 1};
  const int64_t turning = c.rotated_pairs < 0 ? pairs : c.rotated_pairs;
  for (int64_t i = 0; i < turning; ++i) {
    const double fraction = static_cast<double>(2 * i) / static_cast<double>(c.rotary_dim);
    double frequency = Exp64(-fraction * log_ratio) / c.min_timescale;
    if (c.scaling == RopeScaling::kLinear) frequency /= c.factor;
    if (c.scaling == RopeScaling::kLlama3) frequency = Llama3(c, frequency);
    if (c.scaling == RopeScaling::kYarn) {
      const double stretched = std::clamp((static_cast<double>(i) - ramp.low) / (ramp.high - ramp.low), 0.0, 1.0);
      frequency = frequency / c.factor * stretched + frequency * (1 - stretched);
    }
    out.inverse[i] = frequency;
  }
  return out;
}

void RopeTableRef(const RopeTableRows& args, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const double position = static_cast<double>(args.first + row);
    for (int64_t i = 0; i < args.pairs; ++i) {
      const SinCosResult turned = SinCos64(position * args.inverse[i]);
      args.cos[row * args.pairs + i] = static_cast<float>(turned.cos * args.attention_factor);
      args.sin[row * args.pairs + i] = static_cast<float>(turned.sin * args.attention_factor);
    }
  }
}

void FillRopeTable(ThreadPool& pool, Isa isa, const RopeFrequencies& frequencies, int64_t first, int64_t count,
                   float* cos, float* sin) {
  const int64_t pairs = static_cast<int64_t>(frequencies.inverse.size());
  if (first < 0 || count < 0) ThrowUsage("FillRopeTable: positions {} and {} more", first, count);
  if (pairs == 0 || count == 0) return;
  if (cos == nullptr || sin == nullptr) ThrowUsage("FillRopeTable: no memory for {} positions", count);
  const double fastest = *std::max_element(frequencies.inverse.begin(), frequencies.inverse.end());
  const double largest = static_cast<double>(first + count - 1) * fastest;
  if (!(largest <= math::kTrigLimit)) {
    ThrowUsage("FillRopeTable: position {} turns by {} radians, the limit is {}", first + count - 1, largest,
               math::kTrigLimit);
  }
  const RopeTableRows args{frequencies.inverse.data(), frequencies.attention_factor, pairs, first, cos, sin};
  pool.ParallelFor(count, std::max<int64_t>(1, 1024 / pairs), [&](int64_t begin, int64_t end) {
    isa >= Isa::kAvx2 ? RopeTableAvx2(args, begin, end) : RopeTableRef(args, begin, end);
  });
}

}  // namespace octavo::kernels
