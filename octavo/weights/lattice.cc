#include "octavo/weights/lattice.h"

#include <algorithm>
#include <cstring>

#include "octavo/base/check.h"
#include "octavo/base/error.h"
#include "octavo/base/float_mode.h"
#include "octavo/weights/convert_floats.h"
#include "octavo/weights/transpose.h"

namespace octavo::weights {
namespace {

int64_t Tiles(int64_t length, int64_t tile) { return (length + tile - 1) / tile; }

bool InOrder(const std::vector<int32_t>& groups, int64_t tile) {
  for (size_t i = 0; i < groups.size(); ++i) {
    if (groups[i] != static_cast<int64_t>(i) / tile) return false;
  }
  return true;
}

// The value of each possible byte of a code.
std::vector<float> ValueTable(const Lattice& lattice) {
  std::vector<float> values(256);
  for (int code = 0; code < 256; ++code) {
    if (!lattice.table.empty()) {
      values[static_cast<size_t>(code)] = lattice.table[static_cast<size_t>(code) % lattice.table.size()];
    } else if (lattice.codes.dtype() == DType::kI8) {
      values[static_cast<size_t>(code)] = static_cast<float>(static_cast<int8_t>(code));
    } else {
      values[static_cast<size_t>(code)] = Decode(lattice.format, static_cast<uint32_t>(code));
    }
  }
  return values;
}

Tensor InShape(const Lattice& lattice, const Tensor& matrix) {
  const Tensor turned = lattice.transposed ? Transposed(matrix) : matrix;
  const Tensor shaped = turned.Reshape(lattice.shape);
  return (lattice.swap_last ? shaped.SwapAxes(shaped.rank() - 2, shaped.rank() - 1) : shaped).Contiguous();
}

QArray InShape(const Lattice& lattice, const QArray& array) {
  const QArray turned = lattice.transposed ? Transpose(array) : array;
  const QArray shaped = Reshape(turned, lattice.shape);
  return lattice.swap_last ? SwapAxes(shaped, shaped.rank() - 2, shaped.rank() - 1) : shaped;
}

}  // namespace

void Validate(const Lattice& lattice, const std::string& where) {
  const Tensor& codes = lattice.codes;
  OCTAVO_CHECK(codes.rank() == 2 && (codes.dtype() == DType::kI8 || codes.dtype() == DType::kU8));
  if (lattice.tile_rows < 1 || lattice.tile_columns < 1) ThrowFile("{}: empty groups", where);
  const Shape wanted{Tiles(codes.dim(0), lattice.tile_rows), Tiles(codes.dim(1), lattice.tile_columns)};
  if (!lattice.scale.defined() || lattice.scale.shape() != wanted) {
    ThrowFile("{}: expected scales {} for codes {} in tiles of {} × {}, found {}", where, wanted, codes.shape(),
              lattice.tile_rows, lattice.tile_columns, lattice.scale.shape());
  }
  if (!ConvertsFloats(lattice.scale.dtype(), DType::kF32)) {
    ThrowFile("{}: scales of {}", where, NameOf(lattice.scale.dtype()));
  }
  if (lattice.zero && lattice.zero->shape() != wanted) {
    ThrowFile("{}: expected zero points {}, found {}", where, wanted, lattice.zero->shape());
  }
  if (!lattice.group_of.empty()) {
    if (static_cast<int64_t>(lattice.group_of.size()) != codes.dim(lattice.group_axis)) {
      ThrowFile("{}: groups of {} rows, the weight has {}", where, lattice.group_of.size(),
                codes.dim(lattice.group_axis));
    }
    for (const int32_t group : lattice.group_of) {
      if (group < 0 || group >= wanted[lattice.group_axis]) {
        ThrowFile("{}: group {}, there are {}", where, group, wanted[lattice.group_axis]);
      }
    }
  }
  if (Shape(lattice.shape).size() != codes.size()) {
    ThrowFile("{}: {} codes for a weight of shape {}", where, codes.size(), Shape(lattice.shape));
  }
}

Tensor Dequantize(const Lattice& lattice) {
  const ScopedSubnormals as_stored;
  const std::vector<float> value_of = ValueTable(lattice);
  const Tensor codes = lattice.codes.Contiguous();
  const Tensor scale = ConvertFloats(lattice.scale, DType::kF32).Contiguous();
  const int64_t rows = codes.dim(0), columns = codes.dim(1), across = scale.dim(1);
  const auto* code = reinterpret_cast<const uint8_t*>(codes.RawData());
  const float* scales = scale.Data<float>();
  const Tensor zero = lattice.zero ? lattice.zero->Contiguous() : Tensor();
  const int32_t* zeros = lattice.zero ? zero.Data<int32_t>() : nullptr;
  const auto tile_of = [&](int axis, int64_t i, int64_t tile) {
    if (lattice.group_of.empty() || lattice.group_axis != axis) return i / tile;
    return static_cast<int64_t>(lattice.group_of[static_cast<size_t>(i)]);
  };
  Tensor values = Tensor::Empty(codes.shape(), DType::kF32);
  float* out = values.MutableData<float>();
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t tile_row = tile_of(0, r, lattice.tile_rows) * across;
    for (int64_t c = 0; c < columns; ++c, ++code, ++out) {
      const int64_t tile = tile_row + tile_of(1, c, lattice.tile_columns);
      const float offset = zeros == nullptr ? 0.0f : static_cast<float>(zeros[tile]);
      const float value = value_of[*code];
      *out = (zeros == nullptr ? value : value - offset) * scales[tile];
      if (lattice.divisor != 1) *out /= lattice.divisor;
    }
  }
  return InShape(lattice, values);
}

std::optional<QArray> ToQArray(const Lattice& lattice, std::string* reason) {
  const auto refuse = [&](std::string why) {
    *reason = std::move(why);
    return std::nullopt;
  };
  if (!lattice.table.empty()) return refuse(lattice.table_note);
  const int64_t tile = lattice.group_axis == 0 ? lattice.tile_rows : lattice.tile_columns;
  if (!InOrder(lattice.group_of, tile)) return refuse("its groups are scattered over the rows (desc_act)");
  const int64_t rows = lattice.codes.dim(0), columns = lattice.codes.dim(1);
  // One tile that is longer than its axis is the whole axis.
  const auto divides = [](int64_t length, int64_t one) { return one >= length || length % one == 0; };
  if (!divides(rows, lattice.tile_rows) || !divides(columns, lattice.tile_columns)) {
    return refuse(fmt::format("its tiles of {} × {} do not divide {}", lattice.tile_rows, lattice.tile_columns,
                              lattice.codes.shape()));
  }
  QArray array{lattice.codes, lattice.scale, std::nullopt, lattice.format};
  if (lattice.divisor != 1) {
    const ScopedSubnormals as_stored;
    std::vector<float> scales = ConvertFloats(lattice.scale, DType::kF32).ToVector<float>();
    for (float& scale : scales) scale /= lattice.divisor;
    array.scale = Tensor::FromValues(lattice.scale.shape(), DType::kF32, scales);
  }
  if (lattice.zero) {
    const std::vector<int32_t> zeros = lattice.zero->ToVector<int32_t>();
    const bool is_signed = lattice.codes.dtype() == DType::kI8;
    const int32_t least = is_signed ? -128 : 0, most = is_signed ? 127 : 255;
    Tensor narrow = Tensor::Empty(lattice.zero->shape(), lattice.codes.dtype());
    auto* out = reinterpret_cast<uint8_t*>(narrow.MutableRawData());
    for (const int32_t zero : zeros) {
      if (zero < least || zero > most) return refuse(fmt::format("its zero point {} does not fit", zero));
      *out++ = static_cast<uint8_t>(zero);
    }
    array.zero_point = narrow;
  }
  try {
    octavo::Validate("prequantized weight", array);
    return InShape(lattice, array);
  } catch (const Error&) {
    return refuse("its blocks run across rows");
  }
}

}  // namespace octavo::weights
