#include "octavo/numerics/dtype.h"

#include <iterator>

namespace octavo {
namespace {

struct Row {
  DType dtype;
  int64_t size;
  std::string_view name, long_name;
};

constexpr Row kRows[] = {
    {DType::kF32, 4, "f32", "float32"}, {DType::kF64, 8, "f64", "float64"}, {DType::kBF16, 2, "bf16", "bfloat16"},
    {DType::kF16, 2, "f16", "float16"}, {DType::kI8, 1, "i8", "int8"},      {DType::kU8, 1, "u8", "uint8"},
    {DType::kI16, 2, "i16", "int16"},   {DType::kU16, 2, "u16", "uint16"},  {DType::kI32, 4, "i32", "int32"},
    {DType::kU32, 4, "u32", "uint32"},  {DType::kI64, 8, "i64", "int64"},   {DType::kU64, 8, "u64", "uint64"},
    {DType::kBool, 1, "bool", "bool"},
};

constexpr bool RowsAreInOrder() {
  for (size_t i = 0; i < std::size(kRows); ++i) {
    if (static_cast<size_t>(kRows[i].dtype) != i) return false;
  }
  return true;
}
static_assert(RowsAreInOrder());

const Row& RowOf(DType dtype) { return kRows[static_cast<size_t>(dtype)]; }

}  // namespace

int64_t SizeOf(DType dtype) { return RowOf(dtype).size; }

std::string_view NameOf(DType dtype) { return RowOf(dtype).name; }

bool IsFloat(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kBF16 || dtype == DType::kF16;
}

std::optional<DType> DTypeByName(std::string_view name) {
  for (const Row& row : kRows) {
    if (name == row.name || name == row.long_name) return row.dtype;
  }
  return std::nullopt;
}

}  // namespace octavo
