// The int8 product as the driver sees it, for the plain and the ragged entry. Not for users of the kernels.
#pragma once

#include "octavo/kernels/int_driver.h"
#include "octavo/kernels/matmul_i8.h"

namespace octavo::kernels {

inline constexpr IntFamily kFamilyI8Avx2{kStripRowsI8, 8, 0, false, PackStripsI8Avx2, PackPanelsI8Avx2, BlockI8Avx2};
inline constexpr IntFamily kFamilyI8Avx512{kStripRowsAvx512, 4, 1, false, PackStripsI8Avx512, PackPanelsI8Avx2,
                                           BlockI8Avx512};
inline constexpr IntFamily kFamilyI8Amx{kStripRowsAmx, 4, 1, true, PackStripsI8Amx, PackPanelsI8Amx, BlockI8Amx};

// Scratch bytes for a right operand that is not packed yet, and the product with its panels there.
int64_t PanelsScratch(Isa isa, const MatMulI8Args& args);
IntProduct ProductI8(Isa isa, const MatMulI8Args& args, std::byte* memory);

}  // namespace octavo::kernels
