// Which axes of two arrays a dot product sums over and which it runs along: the dimension numbers of a general dot.
// The output has the axes [batch…, lhs free…, rhs free…]. Used by ops/ and quant/; computes shapes only.
#pragma once

#include <string_view>
#include <vector>

#include "octavo/tensor/shape.h"

namespace octavo {

struct DotDims {
  std::vector<int> lhs_contract, rhs_contract;  // pairs, summed over
  std::vector<int> lhs_batch, rhs_batch;        // pairs, kept once

  bool operator==(const DotDims&) const = default;
};

// lhs [..., K] with rhs [K, ...]: the plain matrix product.
DotDims MatMulDims(const Shape& lhs);

// Throws unless the pairs name each axis at most once and pair equal lengths.
void CheckDot(std::string_view op, const Shape& lhs, const Shape& rhs, const DotDims& dims);

// The axes of an operand that are neither contracted nor batch, ascending.
std::vector<int> FreeAxes(int rank, const std::vector<int>& contract, const std::vector<int>& batch);

Shape DotShape(std::string_view op, const Shape& lhs, const Shape& rhs, const DotDims& dims);

// The products behind a dot: batch × m × n outputs of k terms each.
struct DotSize {
  int64_t batch, m, n, k;
};
DotSize SizeOfDot(const Shape& lhs, const Shape& rhs, const DotDims& dims);

}  // namespace octavo
