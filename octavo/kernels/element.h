// Reading and writing one element of a row by its dtype: the scalar access of the reference kernels. The
// instruction-set units have their own (element_avx2.h).
#pragma once

#include <cstdint>
#include <vector>

#include "octavo/base/check.h"
#include "octavo/numerics/dtype.h"
#include "octavo/numerics/half.h"

namespace octavo::kernels {

struct F32Element {
  using Type = float;
  static float Load(Type v) { return v; }
  static Type Store(float v) { return v; }
};

struct Bf16Element {
  using Type = uint16_t;
  static float Load(Type v) { return BF16ToF32(v); }
  static Type Store(float v) { return F32ToBF16(v); }
};

struct F16Element {
  using Type = uint16_t;
  // A signalling NaN becomes quiet, as in every conversion instruction.
  static float Load(Type v) { return F16ToF32((v & 0x7fffu) > 0x7c00u ? v | 0x0200u : v); }
  static Type Store(float v) { return F32ToF16(v); }
};

// Calls work(element) with the element type of f32 or bf16 rows; the door has refused every other dtype.
template <typename Work>
void WithElement(DType dtype, Work work) {
  OCTAVO_CHECK(dtype == DType::kF32 || dtype == DType::kBF16);
  if (dtype == DType::kF32) {
    work(F32Element());
  } else {
    work(Bf16Element());
  }
}

// A vector of f32 or bf16 as f32, with `offset` added. Points at `data` itself when that is already the answer, else
// into `storage`. Null stays null.
inline const float* WidenToF32(const void* data, DType dtype, float offset, int64_t count,
                               std::vector<float>& storage) {
  if (data == nullptr) return nullptr;
  if (dtype == DType::kF32 && offset == 0) return static_cast<const float*>(data);
  storage.resize(count);
  WithElement(dtype, [&](auto element) {
    using E = decltype(element);
    const auto* values = static_cast<const typename E::Type*>(data);
    for (int64_t i = 0; i < count; ++i) storage[i] = E::Load(values[i]) + offset;
  });
  return storage.data();
}

// Row `row` of a ConstRows or MutRows whose elements are E.
template <typename E, typename Rows>
auto RowPointer(const Rows& m, int64_t row) {
  if constexpr (requires(Rows r) { *static_cast<char*>(r.data); }) {
    return static_cast<typename E::Type*>(m.data) + row * m.row_stride;
  } else {
    return static_cast<const typename E::Type*>(m.data) + row * m.row_stride;
  }
}

}  // namespace octavo::kernels
