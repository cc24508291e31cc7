#include "octavo/convert/measure.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "octavo/base/check.h"
#include "octavo/quant/quantize_run.h"
#include "octavo/weights/convert_floats.h"

namespace octavo::convert {
namespace {

constexpr int64_t kChunk = 4096;
constexpr double kExact = 999;

struct Sums {
  double signal = 0, noise = 0, largest = 0;
};

Tensor AsF32(const Tensor& tensor, ThreadPool& pool) {
  return tensor.dtype() == DType::kF32 ? tensor.Contiguous() : weights::ConvertFloats(tensor, DType::kF32, &pool);
}

// In lanes, folded ascending: no sum waits for the one before it.
Sums SumsOf(const float* exact, const float* decoded, int64_t size) {
  constexpr int64_t kLanes = 8;
  Sums lanes[kLanes];
  const auto add = [&](int64_t i) {
    Sums& sum = lanes[i % kLanes];
    const double value = exact[i], error = value - decoded[i];
    sum.signal += value * value;
    sum.noise += error * error;
    sum.largest = std::max(sum.largest, std::abs(error));
  };
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) add(i + lane);
  }
  for (; i < size; ++i) add(i);
  Sums total;
  for (const Sums& sum : lanes) {
    total.signal += sum.signal;
    total.noise += sum.noise;
    total.largest = std::max(total.largest, sum.largest);
  }
  return total;
}

}  // namespace

CodesError MeasureCodes(const Tensor& floats, const QArray& codes, ThreadPool& pool, kernels::Isa isa) {
  OCTAVO_CHECK(floats.size() == codes.qvalue.size());
  kernels::Workspace workspace;
  const Tensor decoded = AsF32(quant::Dequantize(quant::Run{pool, isa, workspace}, codes), pool),
               exact = AsF32(floats, pool);
  const float *a = exact.Data<float>(), *b = decoded.Data<float>();
  const int64_t size = exact.size(), chunks = (size + kChunk - 1) / kChunk;
  std::vector<Sums> sums(static_cast<size_t>(chunks));
  pool.ParallelFor(chunks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      const int64_t from = chunk * kChunk;
      sums[static_cast<size_t>(chunk)] = SumsOf(a + from, b + from, std::min(kChunk, size - from));
    }
  });
  Sums total;
  for (const Sums& sum : sums) {
    total.signal += sum.signal;
    total.noise += sum.noise;
    total.largest = std::max(total.largest, sum.largest);
  }
  const bool exactly = total.noise == 0 || total.signal == 0;
  return {exactly ? kExact : 10 * std::log10(total.signal / total.noise), total.largest};
}

}  // namespace octavo::convert
