#include "octavo/kernels/reductions.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <vector>

#include "octavo/kernels/blocks.h"
#include "octavo/kernels/element.h"
#include "octavo/kernels/lanes.h"

namespace octavo::kernels {

uint32_t AbsMaxBitsRef(const ConstRows& x) {
  uint32_t largest = 0;
  WithElement(x.dtype, [&](auto element) {
    using E = decltype(element);
    for (int64_t r = 0; r < x.rows; ++r) {
      for (int64_t c = 0; c < x.cols; ++c) {
        largest = std::max(largest, std::bit_cast<uint32_t>(E::Load(RowPointer<E>(x, r)[c])) & 0x7fffffffu);
      }
    }
  });
  return largest;
}

double ChunkSumRef(SumOf what, const void* x, DType dtype, int64_t count) {
  LaneSum<double> sum;
  WithElement(dtype, [&](auto element) {
    using E = decltype(element);
    const auto* values = static_cast<const typename E::Type*>(x);
    for (int64_t i = 0; i < count; ++i) {
      const double v = static_cast<double>(E::Load(values[i]));
      sum.lane[i % kLanes] += what == SumOf::kSquares ? v * v : v;
    }
  });
  return sum.Fold();
}

float AbsMax(ThreadPool& pool, Isa isa, const ConstRows& x) {
  CheckRows("AbsMax", "x", x);
  std::atomic<uint32_t> largest{0};  // a maximum does not depend on who comes first
  ForBlocks(pool, x.rows, x.cols, WithoutGaps(x), [&](const Block& block) {
    const ConstRows part = PartOf(x, block);
    const uint32_t found = isa >= Isa::kAvx2 ? AbsMaxBitsAvx2(part) : AbsMaxBitsRef(part);
    uint32_t seen = largest.load(std::memory_order_relaxed);
    while (found > seen && !largest.compare_exchange_weak(seen, found, std::memory_order_relaxed)) {
    }
  });
  return std::bit_cast<float>(largest.load(std::memory_order_relaxed));
}

void RowAbsMax(ThreadPool& pool, Isa isa, const ConstRows& x, float* out) {
  CheckRows("RowAbsMax", "x", x);
  CheckPresent("RowAbsMax", "out", out, x.rows);
  pool.ParallelFor(x.rows, RowGrain(x.cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const ConstRows row = PartOf(x, {r, r + 1, 0, x.cols});
      out[r] = std::bit_cast<float>(isa >= Isa::kAvx2 ? AbsMaxBitsAvx2(row) : AbsMaxBitsRef(row));
    }
  });
}

void ChunkSums(ThreadPool& pool, Isa isa, SumOf what, const void* x, DType dtype, int64_t count, double* partial) {
  CheckRows("ChunkSums", "x", {x, dtype, 1, count, count});
  CheckPresent("ChunkSums", "partial", partial, ChunksOf(count));
  pool.ParallelFor(ChunksOf(count), 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const void* chunk = static_cast<const char*>(x) + i * kChunk * SizeOf(dtype);
      const int64_t size = std::min(kChunk, count - i * kChunk);
      partial[i] = isa >= Isa::kAvx2 ? ChunkSumAvx2(what, chunk, dtype, size) : ChunkSumRef(what, chunk, dtype, size);
    }
  });
}

double AddAscending(const double* partial, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += partial[i];
  return sum;
}

double SumChunks(ThreadPool& pool, Isa isa, SumOf what, const void* x, DType dtype, int64_t count) {
  std::vector<double> partial(ChunksOf(std::max<int64_t>(0, count)));
  ChunkSums(pool, isa, what, x, dtype, count, partial.data());
  return AddAscending(partial.data(), static_cast<int64_t>(partial.size()));
}

void SumPerSequence(const float* values, int64_t tokens, const Sequences& sequences, double* out) {
  CheckPresent("SumPerSequence", "values", values, tokens);
  CheckSequences("SumPerSequence", sequences, tokens);
  const int64_t count = std::max<int64_t>(1, sequences.count);
  CheckPresent("SumPerSequence", "out", out, count);
  for (int64_t s = 0; s < count; ++s) {
    const int64_t begin = sequences.count == 0 ? 0 : sequences.begin[s];
    const int64_t end = sequences.count == 0 ? tokens : sequences.begin[s + 1];
    double sum = 0;
    for (int64_t t = begin; t < end; ++t) sum += static_cast<double>(values[t]);
    out[s] = sum;
  }
}

}  // namespace octavo::kernels
