// MaxText's manual_quantize: one fixed scale for the whole tensor, written as a calibration method. For code that
// quantizes by hand instead of by rules.
#pragma once

#include <string_view>

#include "octavo/quant/arithmetic.h"
#include "octavo/tensor/qarray.h"

namespace octavo::quant {

// `method` is "fixed,MAX" or "fixed,-MAX,MAX". Usage errors: no method, another method, a range that is not symmetric
// and positive. The scale is MAX / bound of the format in double, rounded to the tensor's type; values beyond are
// saturated.
QArray ManualQuantize(const Tensor& tensor, Format format, std::string_view method, const Arithmetic& arithmetic = {});

}  // namespace octavo::quant
