#include "octavo/kernels/float_source.h"

#include "octavo/numerics/half.h"

namespace octavo::kernels {
namespace {

float DecodedAt(const FloatSource& source, int64_t index) {
  switch (source.stored) {
    case Stored::kF32:
      return static_cast<const float*>(source.data)[index];
    case Stored::kBF16:
      return BF16ToF32(static_cast<const uint16_t*>(source.data)[index]);
    case Stored::kF16:
      return F16ToF32(static_cast<const uint16_t*>(source.data)[index]);
    case Stored::kI8:
      return static_cast<const int8_t*>(source.data)[index];
    case Stored::kByte:
      return source.table->value[static_cast<const uint8_t*>(source.data)[index]];
    case Stored::kNibble: {
      const uint8_t byte = static_cast<const uint8_t*>(source.data)[index / 2];
      return source.table->value[index % 2 == 0 ? byte & 15 : byte >> 4];
    }
  }
  return 0;
}

FloatSource Make(const void* data, Stored stored, int64_t rows, int64_t cols, const CodeTable* table = nullptr) {
  FloatSource source;
  source.data = data;
  source.stored = stored;
  source.rows = rows;
  source.cols = cols;
  source.row_stride = cols;
  source.table = table;
  return source;
}

}  // namespace

FloatSource FloatSource::Transposed() const {
  FloatSource t = *this;
  t.rows = cols, t.cols = rows;
  t.row_stride = col_stride, t.col_stride = row_stride;
  t.scales.tile_rows = scales.tile_cols, t.scales.tile_cols = scales.tile_rows;
  t.scales.row_stride = scales.col_stride, t.scales.col_stride = scales.row_stride;
  t.scales.row0 = scales.col0, t.scales.col0 = scales.row0;
  return t;
}

FloatSource FloatSource::RowRange(int64_t begin, int64_t end) const {
  FloatSource slice = *this;
  slice.rows = end - begin;
  slice.offset += begin * row_stride;
  slice.scales.row0 += begin;
  return slice;
}

FloatSource FloatSource::ColRange(int64_t begin, int64_t end) const {
  return Transposed().RowRange(begin, end).Transposed();
}

FloatSource SourceF32(const float* data, int64_t rows, int64_t cols) { return Make(data, Stored::kF32, rows, cols); }
FloatSource SourceBF16(const uint16_t* data, int64_t rows, int64_t cols) {
  return Make(data, Stored::kBF16, rows, cols);
}
FloatSource SourceF16(const uint16_t* data, int64_t rows, int64_t cols) { return Make(data, Stored::kF16, rows, cols); }
FloatSource SourceI8(const int8_t* data, int64_t rows, int64_t cols) { return Make(data, Stored::kI8, rows, cols); }
FloatSource SourceBytes(const uint8_t* data, const CodeTable& table, int64_t rows, int64_t cols) {
  return Make(data, Stored::kByte, rows, cols, &table);
}
FloatSource SourceNibbles(const uint8_t* data, const CodeTable& table, int64_t rows, int64_t cols) {
  return Make(data, Stored::kNibble, rows, cols, &table);
}

float ValueAt(const FloatSource& source, int64_t r, int64_t c) {
  float value = DecodedAt(source, source.offset + r * source.row_stride + c * source.col_stride);
  const TileScales& s = source.scales;
  if (s.scale == nullptr) return value;
  const int64_t at = (r + s.row0) / s.tile_rows * s.row_stride + (c + s.col0) / s.tile_cols * s.col_stride;
  if (s.zero_point != nullptr) value -= s.zero_point[at];
  return value * s.scale[at];
}

FloatResult FloatResult::RowRange(int64_t begin, int64_t end) const {
  const int64_t bytes = stored == Stored::kF32 ? 4 : 2;
  return {static_cast<char*>(data) + begin * row_stride * bytes, stored, end - begin, cols, row_stride, col_stride};
}

FloatResult ResultF32(float* data, int64_t rows, int64_t cols) { return {data, Stored::kF32, rows, cols, cols, 1}; }
FloatResult ResultBF16(uint16_t* data, int64_t rows, int64_t cols) {
  return {data, Stored::kBF16, rows, cols, cols, 1};
}
FloatResult ResultF16(uint16_t* data, int64_t rows, int64_t cols) { return {data, Stored::kF16, rows, cols, cols, 1}; }

}  // namespace octavo::kernels
