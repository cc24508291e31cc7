// Reductions over whole tensors: largest magnitude, sums and sums of squares for norms and statistics. Used by gradient
// clipping, calibration and metrics. Sums are double: 16 lanes over a chunk of 4096 elements, the fold of lanes.h, and
// chunks added ascending. A chunk is cut at multiples of 4096 of the logical parameter, so ranks that hold whole chunks
// can each compute theirs and the total is the same.
#pragma once

#include <cstdint>

#include "octavo/base/thread_pool.h"
#include "octavo/kernels/isa.h"
#include "octavo/kernels/reductions_rows.h"

namespace octavo::kernels {

// The largest |x| of all elements, 0 for none. NaN if any element is NaN. Subnormals count.
float AbsMax(ThreadPool& pool, Isa isa, const ConstRows& x);
void RowAbsMax(ThreadPool& pool, Isa isa, const ConstRows& x, float* out);  // [rows]

// partial[i] = the sum over elements 4096 i … 4096 i + 4095 of one long row; squares are exact in double.
// `partial` holds ChunksOf(count) numbers.
inline int64_t ChunksOf(int64_t count) { return (count + kChunk - 1) / kChunk; }
void ChunkSums(ThreadPool& pool, Isa isa, SumOf what, const void* x, DType dtype, int64_t count, double* partial);

// ((p[0] + p[1]) + p[2]) + …
double AddAscending(const double* partial, int64_t count);

// ChunkSums and AddAscending in one.
double SumChunks(ThreadPool& pool, Isa isa, SumOf what, const void* x, DType dtype, int64_t count);

// out[s] = the ascending sum of values[t] over the tokens of sequence s, in double: losses and counts per sequence.
// One sequence when `sequences` is empty.
void SumPerSequence(const float* values, int64_t tokens, const Sequences& sequences, double* out);

}  // namespace octavo::kernels
