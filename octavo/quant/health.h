// What quantization does to the numbers of a run: per site and operand how many values were clipped, rounded to zero or
// not finite, their range, the scales, and the signal-to-noise ratio. A sink is given to a provider and read between
// steps by whoever reports. Counts are integers and sums have a fixed order, so the figures are equal for any number of
// threads; records of several shards or ranks are merged in shard order by the caller. Writes no files and judges
// nothing (health_warnings.h).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/quant/run.h"
#include "octavo/tensor/qarray.h"

namespace octavo::quant {

enum class HealthMode : uint8_t { kOff, kLight, kFull };
HealthMode ParseHealthMode(std::string_view text);  // "off", "light", "full"

struct OperandHealth {
  Format format = Format::kInt8;
  bool follows = true;  // the scale came from these very values; false: static, delayed or fixed
  bool once = false;    // a weight that is prepared once per step: every rank has counted the same values
  // Every step.
  int64_t elements = 0;
  int64_t saturated = 0;  // outside the range of the format by more than rounding
  int64_t nonfinite = 0;
  // Full steps only; `measured` is how many elements these are about.
  int64_t measured = 0;
  int64_t flushed = 0;                 // not zero before, zero after
  float amax = 0, smallest = 0;        // magnitudes of finite values, zero aside; 0: none
  float scale_min = 0, scale_max = 0;  // of finite scales
  double squares = 0, error_squares = 0;

  double SaturatedShare() const;
  double FlushedShare() const;
  double Sqnr() const;  // dB; infinite without error
  void Merge(const OperandHealth& later);
};

// A site as in plans and an operand: "forward.lhs", "grad_rhs.lhs", ….
struct HealthKey {
  std::string site, operand;
  auto operator<=>(const HealthKey&) const = default;
};
using HealthRecords = std::map<HealthKey, OperandHealth>;
void Merge(HealthRecords& into, const HealthRecords& later);

class HealthSink {
 public:
  // `filter` is a regular expression over the whole path of a site; empty: all.
  explicit HealthSink(HealthMode mode, std::string_view filter = "");
  ~HealthSink();

  // What the next steps record: a run with mode full or light is set to full every so many steps.
  void SetMode(HealthMode mode) { mode_ = mode; }
  HealthMode mode() const { return mode_; }
  bool Wants(const std::string& path);

  const HealthRecords& records() const { return records_; }
  HealthRecords Take();  // and begins anew

  OperandHealth& At(std::string site, std::string_view operand);

 private:
  struct Filter;
  HealthMode mode_;
  std::unique_ptr<Filter> filter_;
  std::map<std::string, bool, std::less<>> wanted_;
  HealthRecords records_;
};

// Called after an operand was quantized. `factor` multiplied the values first (Quantize). With non_finite = error a
// value that is not finite is an error that names site, operand and product, with or without a sink.
void ObserveHealth(const Run& run, Spot spot, const Tensor& values, const QArray& quantized, bool follows,
                   const Tensor* factor = nullptr);

// The figures of one operand alone, all of them or only those of light steps.
OperandHealth MeasureHealth(const Run& run, const Tensor& values, const QArray& quantized, bool follows, bool full);

}  // namespace octavo::quant
