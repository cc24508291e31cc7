// What the ops of this folder share: tensors as the rows that kernels take, sequences for sums over tokens, the noise
// key of a site. Not for callers of ops.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/kernels/rows.h"
#include "octavo/ops/context.h"
#include "octavo/ops/var.h"

namespace octavo::ops {

// f32 or bf16, else a usage error that begins with `where`.
void CheckFloat(std::string_view where, const Tensor& tensor);
void CheckSame(std::string_view where, const Tensor& a, const Tensor& b);  // shape and dtype

// A tensor as [rows, last axis]. No copy when the last axis is contiguous and the others have one stride.
struct RowsOfTensor {
  Tensor tensor;  // keeps the memory
  kernels::ConstRows rows;
};
RowsOfTensor AsRows(const Tensor& tensor);
// The same over all elements, for work that does not care about rows.
kernels::MutRows WholeOf(Tensor& tensor);    // contiguous, just made
kernels::MutRows MutRowsOf(Tensor& tensor);  // contiguous, just made: [rows, last axis]

// The first element, whatever the dtype.
const void* DataOf(const Tensor& tensor);
void* MutDataOf(Tensor& tensor);

// Where sequences begin in `rows` rows: those of the context's Rows, each token standing for rows / tokens rows. Empty
// when the context has none.
std::vector<int32_t> StartsFor(const Context& context, int64_t rows);
kernels::Sequences SequencesOf(const std::vector<int32_t>& starts);

// Noise of the current module: folds in the path and `name`.
RngKey KeyOf(const Context& context, std::string_view name);

}  // namespace octavo::ops
