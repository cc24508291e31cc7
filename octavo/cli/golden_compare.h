// Comparisons of a result with reference data. Each returns nothing when they agree, else a line that says how many
// elements differ and shows the first. Comparing never depends on the thread's floating-point mode. Used by the golden
// runner and by tests.
#pragma once

#include <optional>
#include <string>

#include "octavo/numerics/format.h"
#include "octavo/tensor/tensor.h"

namespace octavo {

using Mismatch = std::optional<std::string>;

// The same bits; any NaN equals any NaN and +0 equals -0. With `format` the elements are codes of a small float and NaN
// and zero are those of the format.
Mismatch CompareBits(const Tensor& expected, const Tensor& actual, std::optional<Format> format = std::nullopt);

// At most `places` units in the last place apart (float dtypes), counting through zero; NaN and infinities must match.
Mismatch CompareUlps(const Tensor& expected, const Tensor& actual, int64_t places);

// A float dot: f32 and f64 within 2e-6 of the largest expected magnitude, bf16 and f16 within one unit in the last
// place. Integers must be equal.
Mismatch CompareDot(const Tensor& expected, const Tensor& actual);

// |actual - expected| <= relative * |expected| for each element.
Mismatch CompareRelative(const Tensor& expected, const Tensor& actual, double relative);

// |actual - expected| <= relative * max|expected| for each element.
Mismatch CompareToLargest(const Tensor& expected, const Tensor& actual, double relative);

// For dots that feed quantizers, where one bit may flip a code further on: everything within `loose` of the largest
// magnitude, and at least half of the elements within `tight` of it.
Mismatch CompareChained(const Tensor& expected, const Tensor& actual, double loose = 2e-2, double tight = 1e-6);

}  // namespace octavo
