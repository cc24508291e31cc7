#include "octavo/kernels/weight_only.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "octavo/base/error.h"
#include "octavo/numerics/half.h"

namespace octavo::kernels {
namespace {

bool SameBits(float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b); }
bool FitsBF16(float v) { return (std::bit_cast<uint32_t>(v) & 0xffffu) == 0; }

// The code of an element as stored, without its meaning.
uint32_t CodeAt(const FloatSource& s, int64_t r, int64_t c) {
  const int64_t at = s.offset + r * s.row_stride + c * s.col_stride;
  switch (s.stored) {
    case Stored::kF32:
      return static_cast<const uint32_t*>(s.data)[at];
    case Stored::kBF16:
    case Stored::kF16:
      return static_cast<const uint16_t*>(s.data)[at];
    case Stored::kI8:
    case Stored::kByte:
      return static_cast<const uint8_t*>(s.data)[at];
    case Stored::kNibble: {
      const uint8_t byte = static_cast<const uint8_t*>(s.data)[at / 2];
      return at % 2 == 0 ? byte & 15u : byte >> 4;
    }
  }
  return 0;
}

bool LowNibbleDecides(const CodeTable& table) {
  for (int c = 16; c < 256; ++c) {
    if (!SameBits(table.value[c], table.value[c % 16])) return false;
  }
  return true;
}

bool WholeBytes(const CodeTable& table) {
  for (float v : table.value) {
    if (!(v >= -128 && v <= 127 && v == std::nearbyint(v)) || SameBits(v, -0.0f)) return false;
  }
  return true;
}

// True when code * factor * scale may be computed as code * (factor * scale): the second product is exact.
bool Folds(float factor, float scale) {
  const float product = factor * scale;
  return scale == 0 || (std::fabs(scale) >= 0x1p-126f && std::fabs(product) >= 0x1p-126f && std::isfinite(product));
}

Packing ChoosePacking(const FloatSource& b) {
  switch (b.stored) {
    case Stored::kF32:
      return Packing::kF32;
    case Stored::kBF16:
      return Packing::kBF16;
    case Stored::kF16:
      return Packing::kF16;
    case Stored::kI8:
      return Packing::kI8;
    default:
      break;
  }
  const CodeTable& table = *b.table;
  if (b.stored == Stored::kNibble || LowNibbleDecides(table)) {
    for (int c = 0; c < 16; ++c) {
      if (!FitsBF16(table.value[c])) return Packing::kNibbleLong;
    }
    return Packing::kNibbleShort;
  }
  if (WholeBytes(table)) return Packing::kI8;
  if (!table.has_half || b.scales.zero_point != nullptr) return Packing::kTableByte;
  return Packing::kHalfByte;
}

// Where scales change along K, and which entry of the source a panel's entry comes from.
struct Groups {
  int64_t count = 1, group = 1, first = 0;
};

Groups GroupsOf(const FloatSource& b) {
  if (b.scales.scale == nullptr || b.scales.row_stride == 0 || b.rows == 0) return {1, b.rows > 0 ? b.rows : 1, 0};
  const int64_t first = b.scales.row0 % b.scales.tile_rows;
  return {(b.rows - 1 + first) / b.scales.tile_rows + 1, b.scales.tile_rows, first};
}

// The scale (or zero point) of group g and column n.
float EntryAt(const FloatSource& b, const float* values, const Groups& groups, int64_t g, int64_t n) {
  const TileScales& s = b.scales;
  const int64_t k = g == 0 ? 0 : g * groups.group - groups.first;
  return values[(k + s.row0) / s.tile_rows * s.row_stride + (n + s.col0) / s.tile_cols * s.col_stride];
}

// Every entry of scales or zero points, tested.
template <typename Test>
bool AllEntries(const FloatSource& b, const float* values, const Groups& groups, Test test) {
  for (int64_t g = 0; g < groups.count; ++g) {
    for (int64_t n = 0; n < b.cols; ++n) {
      if (!test(EntryAt(b, values, groups, g, n))) return false;
    }
  }
  return true;
}

bool HasSpecialCode(const FloatSource& b) {
  const CodeTable& table = *b.table;
  for (int64_t k = 0; k < b.rows; ++k) {
    for (int64_t n = 0; n < b.cols; ++n) {
      const int code = static_cast<int>(CodeAt(b, k, n));
      if ((code & 127) >= table.special_from || code == table.special_code) return true;
    }
  }
  return false;
}

void StoreCode(const PackedView& view, uint8_t* panel, int64_t k, int64_t n, uint32_t code) {
  const CodePlace place = PlaceOf(view.packing, k, n);
  switch (view.packing) {
    case Packing::kF32:
      std::memcpy(panel + place.byte, &code, 4);
      break;
    case Packing::kBF16:
    case Packing::kF16: {
      const auto half = static_cast<uint16_t>(code);
      std::memcpy(panel + place.byte, &half, 2);
      break;
    }
    case Packing::kNibbleShort:
    case Packing::kNibbleLong:
      panel[place.byte] = static_cast<uint8_t>(panel[place.byte] | (place.upper ? (code & 15u) << 4 : code & 15u));
      break;
    default:
      panel[place.byte] = static_cast<uint8_t>(code);
  }
}

void PackPanel(const FloatSource& b, const PackedView& view, int64_t panel, uint8_t* out) {
  std::memset(out, 0, static_cast<size_t>(view.panel_bytes));
  const bool whole = view.packing == Packing::kI8 && b.stored != Stored::kI8;
  const int64_t begin = panel * kPanelCols, end = std::min(begin + kPanelCols, b.cols);
  for (int64_t k = 0; k < b.rows; ++k) {
    for (int64_t n = begin; n < end; ++n) {
      uint32_t code = CodeAt(b, k, n);
      if (whole) code = static_cast<uint8_t>(static_cast<int>(b.table->value[code]));
      StoreCode(view, out, k, n - begin, code);
    }
  }
}

void PackEntries(const FloatSource& b, const float* values, const Groups& groups, float factor, bool is_short,
                 int64_t panel, void* out) {
  for (int64_t g = 0; g < groups.count; ++g) {
    for (int64_t i = 0; i < kPanelCols; ++i) {
      const int64_t n = panel * kPanelCols + i, at = (panel * groups.count + g) * kPanelCols + i;
      const float value = n < b.cols ? EntryAt(b, values, groups, g, n) * factor : 0.0f;
      if (is_short) {
        static_cast<uint16_t*>(out)[at] = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
      } else {
        static_cast<float*>(out)[at] = value;
      }
    }
  }
}

float EntryOf(const PackedView& view, const void* entries, int64_t k, int64_t n) {
  const int64_t at = (n / kPanelCols * view.groups + (k + view.first) / view.group) * kPanelCols + n % kPanelCols;
  return view.short_scales ? BF16ToF32(static_cast<const uint16_t*>(entries)[at])
                           : static_cast<const float*>(entries)[at];
}

}  // namespace

int64_t PackedWeights::bytes() const {
  const int64_t panels = (view_.cols + kPanelCols - 1) / kPanelCols;
  const int64_t entry = view_.short_scales ? 2 : 4;
  const int64_t entries = panels * view_.groups * kPanelCols * entry;
  return panels * view_.panel_bytes + (view_.has_scales ? entries : 0) + (view_.has_zero_points ? entries : 0);
}

PackedWeights PackWeights(ThreadPool& pool, const FloatSource& b) {
  if (b.rows < 0 || b.cols < 0) ThrowUsage("PackWeights: b is [{}, {}]", b.rows, b.cols);
  if ((b.stored == Stored::kByte || b.stored == Stored::kNibble) && b.table == nullptr) {
    ThrowUsage("PackWeights: b holds codes but has no table of their values");
  }
  if (b.scales.zero_point != nullptr && b.scales.scale == nullptr)
    ThrowUsage("PackWeights: zero points without scales");
  PackedWeights weights;
  PackedView& view = weights.view_;
  const Groups groups = GroupsOf(b);
  const float *scale = b.scales.scale, *zero = b.scales.zero_point;
  view.packing = ChoosePacking(b);
  if (b.table != nullptr) view.table = *b.table;
  float factor = 1;
  if (view.packing == Packing::kHalfByte) {
    const float f = view.table.half_factor;
    const bool folds = scale == nullptr || AllEntries(b, scale, groups, [f](float s) { return Folds(f, s); });
    if (!folds || HasSpecialCode(b)) {
      view.packing = Packing::kTableByte;
    } else {
      factor = f;
    }
  }
  view.depth = b.rows, view.cols = b.cols;
  view.panel_bytes = PanelBytes(view.packing, b.rows);
  view.groups = groups.count, view.group = groups.group, view.first = groups.first;
  view.has_scales = scale != nullptr, view.has_zero_points = zero != nullptr;
  view.short_scales =
      (scale == nullptr || AllEntries(b, scale, groups, [factor](float s) { return FitsBF16(s * factor); })) &&
      (zero == nullptr || AllEntries(b, zero, groups, &FitsBF16));
  const int64_t panels = (b.cols + kPanelCols - 1) / kPanelCols;
  const size_t entries = static_cast<size_t>(panels * groups.count * kPanelCols) * (view.short_scales ? 2 : 4);
  // Kernels may load a whole vector at the last code.
  weights.codes_ = Buffer(static_cast<size_t>(panels * view.panel_bytes) + 64);
  if (view.has_scales) weights.scales_ = Buffer(entries);
  if (view.has_zero_points) weights.zero_points_ = Buffer(entries);
  auto* codes = static_cast<uint8_t*>(weights.codes_.data());
  pool.ParallelFor(panels, 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      PackPanel(b, view, p, codes + p * view.panel_bytes);
      if (scale != nullptr) PackEntries(b, scale, groups, factor, view.short_scales, p, weights.scales_.data());
      if (zero != nullptr) PackEntries(b, zero, groups, 1, view.short_scales, p, weights.zero_points_.data());
    }
  });
  view.codes = codes;
  view.scales = weights.scales_.data();
  view.zero_points = weights.zero_points_.data();
  return weights;
}

float ValueAt(const PackedWeights& weights, int64_t k, int64_t n) {
  const PackedView& view = weights.view();
  const CodePlace place = PlaceOf(view.packing, k, n % kPanelCols);
  const uint8_t* at = view.codes + n / kPanelCols * view.panel_bytes + place.byte;
  float value = 0;
  uint16_t half = 0;
  switch (view.packing) {
    case Packing::kF32:
      std::memcpy(&value, at, 4);
      break;
    case Packing::kBF16:
      std::memcpy(&half, at, 2);
      value = BF16ToF32(half);
      break;
    case Packing::kF16:
      std::memcpy(&half, at, 2);
      value = F16ToF32(half);
      break;
    case Packing::kI8:
      value = static_cast<int8_t>(*at);
      break;
    case Packing::kHalfByte:  // the factor is in the scale, if there is one
      value = view.table.value[*at];
      if (view.has_scales) value /= view.table.half_factor;
      break;
    case Packing::kTableByte:
      value = view.table.value[*at];
      break;
    case Packing::kNibbleShort:
    case Packing::kNibbleLong:
      value = view.table.value[place.upper ? *at >> 4 : *at & 15];
  }
  if (!view.has_scales) return value;
  if (view.has_zero_points) value -= EntryOf(view, view.zero_points, k, n);
  return value * EntryOf(view, view.scales, k, n);
}

}  // namespace octavo::kernels
