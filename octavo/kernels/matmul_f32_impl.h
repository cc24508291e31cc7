// Inside the F family: the entries that matmul_f32.cc chooses from. Not for callers.
#pragma once

#include <span>

#include "octavo/kernels/matmul_f32.h"
#include "octavo/kernels/matmul_f32_tile.h"

namespace octavo::kernels {

// The plain loops that define the bits. Every other kernel of the family is compared with this one.
void MatMulF32Reference(ThreadPool& pool, const MatMulF32Args& args);

// Blocked and packed, any shape with K >= 1 (AVX2, AVX-512).
void MatMulF32Blocked(ThreadPool& pool, Isa isa, Workspace& workspace, std::span<const MatMulF32Args> many);

// M <= 8 and an f32 B with a unit stride: streams B (AVX2).
void MatMulF32Stream(ThreadPool& pool, Workspace& workspace, const MatMulF32Args& args);

// M <= 8 and packed weights: streams the panels (AVX2, AVX-512).
void MatMulF32PackedStream(ThreadPool& pool, Isa isa, Workspace& workspace, const MatMulF32Args& args);

// The epilogue for the part of C that starts at (row, col).
internal::FinishF32 MakeFinish(const EpilogueF32& epilogue, const FloatResult& c, int64_t row, int64_t col);

}  // namespace octavo::kernels
