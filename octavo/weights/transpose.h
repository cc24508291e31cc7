// A matrix turned around, in tiles that fit the cache: what kernels of other tools need on the way in and out. The same
// values as tensor.Transpose().Contiguous(), several times faster.
#pragma once

#include "octavo/tensor/tensor.h"

namespace octavo::weights {

// [rows, columns] -> [columns, rows], packed.
Tensor Transposed(const Tensor& matrix);

}  // namespace octavo::weights
