// How one element is stored in memory. What the stored code means is a Format (format.h): an int4 code is stored in an
// i8, an fp8 code in a u8. Used by tensors, kernels and files.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace octavo {

enum class DType : uint8_t { kF32, kF64, kBF16, kF16, kI8, kU8, kI16, kU16, kI32, kU32, kI64, kU64, kBool };

int64_t SizeOf(DType dtype);           // bytes of one element
std::string_view NameOf(DType dtype);  // "f32", "bf16", "i8", …
bool IsFloat(DType dtype);             // f32, f64, bf16, f16
std::optional<DType> DTypeByName(std::string_view name);

}  // namespace octavo
