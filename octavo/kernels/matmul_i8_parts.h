// The int8 product as the driver sees it, for the plain and the ragged entry. Not for users of the kernels.
#pragma once

#include "octavo/kernels/int_driver.h"
#include "octavo/kernels/matmul_i8.h"

namespace octavo::kernels {

inline constexpr IntFamily kFamilyI8{kStripRowsI8, PackStripsI8Avx2, PackPanelsI8Avx2, BlockI8Avx2};

// Scratch bytes for a right operand that is not packed yet, and the product with its panels there.
size_t PanelsScratch(const MatMulI8Args& args);
IntProduct ProductI8(const MatMulI8Args& args, std::byte* memory);

}  // namespace octavo::kernels
