#include "octavo/kernels/weight_only.h"

#include <algorithm>
#include <atomic>
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

// Where scales change along K. Without scales there is one group, and the offset packings scale by 1.
struct Groups {
  explicit Groups(const FloatSource& source) : b(source) {
    const TileScales& s = b.scales;
    group = std::max<int64_t>(b.rows, 1);
    if (s.scale == nullptr || s.row_stride == 0 || b.rows == 0) return;
    group = s.tile_rows;
    first = s.row0 % s.tile_rows;
    count = (b.rows - 1 + first) / s.tile_rows + 1;
  }
  // The scale or zero point of group g and column n.
  float At(const float* values, int64_t g, int64_t n) const {
    const TileScales& s = b.scales;
    const int64_t k = g == 0 ? 0 : g * group - first;
    return values[(k + s.row0) / s.tile_rows * s.row_stride + (n + s.col0) / s.tile_cols * s.col_stride];
  }
  float Scale(int64_t g, int64_t n) const { return b.scales.scale == nullptr ? 1.0f : At(b.scales.scale, g, n); }

  template <typename Test>
  bool AllScales(Test test) const {
    for (int64_t g = 0; g < count; ++g) {
      for (int64_t n = 0; n < b.cols; ++n) {
        if (!test(Scale(g, n))) return false;
      }
    }
    return true;
  }
  template <typename Test>
  bool AllZeroPoints(Test test) const {
    for (int64_t g = 0; g < count && b.scales.zero_point != nullptr; ++g) {
      for (int64_t n = 0; n < b.cols; ++n) {
        if (!test(At(b.scales.zero_point, g, n))) return false;
      }
    }
    return true;
  }

  const FloatSource& b;
  int64_t count = 1, group = 1, first = 0;
};

// How a matrix will be packed.
struct Plan {
  Packing packing = Packing::kTableByte;
  CodeTable table;
  float offset = 0, unit = 1;
  float factor = 1;   // into every scale
  uint8_t code[256];  // from source codes to stored ones
};

void KeepCodes(Plan& plan) {
  for (int c = 0; c < 256; ++c) plan.code[c] = static_cast<uint8_t>(c);
}

bool LowNibbleDecides(const CodeTable& table) {
  for (int c = 16; c < 256; ++c) {
    if (!SameBits(table.value[c], table.value[c % 16])) return false;
  }
  return true;
}

// Tries to see the values as whole numbers of a unit with an offset; false when they are not, or when scales and zero
// points do not allow the arithmetic of the offset packings.
bool PlanOffsets(const Groups& groups, const CodeTable& table, int codes, Plan& plan) {
  float least = 0, most = 0;
  for (plan.unit = 1; plan.unit >= 0.25f; plan.unit /= 2) {
    bool whole = true;
    for (int c = 0; c < codes && whole; ++c) {
      const float v = table.value[c] / plan.unit;
      whole = std::fabs(v) <= 255 && v == std::nearbyint(v) && !SameBits(table.value[c], -0.0f);
      least = std::min(least, v), most = std::max(most, v);
    }
    if (whole) break;
    least = most = 0;
  }
  if (plan.unit < 0.25f) return false;
  plan.offset = least == 0 ? 0.0f : std::exp2(std::ceil(std::log2(-least)));
  if (most + plan.offset > 255) return false;
  if (!groups.AllScales([](float s) { return s >= 0x1p-90f && s <= 0x1p90f; })) return false;
  if (!groups.AllZeroPoints([](float z) { return std::fabs(z) <= 4096 && z == std::nearbyint(z); })) return false;
  const auto stored = [&](int c) { return table.value[c] / plan.unit + plan.offset; };
  if (codes == 256) {
    if (most > 127) return false;  // the signed column of a block
    plan.packing = Packing::kOffsetByte;
    for (int c = 0; c < 256; ++c) plan.code[c] = static_cast<uint8_t>(stored(c));
  } else if (most + plan.offset <= 15) {
    plan.packing = Packing::kOffsetNibble;
    for (int c = 0; c < 256; ++c) plan.code[c] = static_cast<uint8_t>(stored(c % 16));
  } else {
    plan.packing = Packing::kOffsetLookup;
    for (int c = 0; c < 16; ++c) plan.table.value[c] = stored(c);
  }
  return true;
}

bool HasSpecialCode(ThreadPool& pool, const FloatSource& b) {
  const CodeTable& table = *b.table;
  std::atomic<bool> found{false};
  pool.ParallelFor(b.rows, 64, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      for (int64_t n = 0; n < b.cols; ++n) {
        const int code = static_cast<int>(CodeAt(b, k, n));
        if ((code & 127) >= table.special_from || code == table.special_code) found.store(true);
      }
    }
  });
  return found.load();
}

// True when code * factor * scale may be computed as code * (factor * scale): the second product is exact.
bool Folds(float factor, float scale) {
  const float product = factor * scale;
  return scale == 0 || (std::fabs(scale) >= 0x1p-126f && std::fabs(product) >= 0x1p-126f && std::isfinite(product));
}

Plan PlanOf(ThreadPool& pool, const FloatSource& b, const Groups& groups) {
  Plan plan;
  KeepCodes(plan);
  CodeTable whole;  // int8 as a table
  for (int c = 0; c < 256; ++c) whole.value[c] = static_cast<float>(static_cast<int8_t>(c));
  switch (b.stored) {
    case Stored::kF32:
      plan.packing = Packing::kF32;
      return plan;
    case Stored::kBF16:
      plan.packing = Packing::kBF16;
      return plan;
    case Stored::kF16:
      plan.packing = Packing::kF16;
      return plan;
    default:
      break;
  }
  const CodeTable& table = b.stored == Stored::kI8 ? whole : *b.table;
  plan.table = table;
  const bool nibbles = b.stored == Stored::kNibble || (b.stored == Stored::kByte && LowNibbleDecides(table));
  if (PlanOffsets(groups, table, nibbles ? 16 : 256, plan)) return plan;
  if (nibbles) {
    plan.packing = Packing::kNibbleTable;
  } else if (table.has_half && b.scales.zero_point == nullptr &&
             groups.AllScales([&](float s) { return Folds(table.half_factor, s); }) && !HasSpecialCode(pool, b)) {
    plan.packing = Packing::kHalfByte;
    if (b.scales.scale != nullptr) plan.factor = table.half_factor;
  }
  return plan;
}

bool IsNibble(Packing packing) {
  return packing == Packing::kOffsetNibble || packing == Packing::kOffsetLookup || packing == Packing::kNibbleTable;
}

// Codes of columns [begin, end) of row k.
void ReadCodes(const FloatSource& s, int64_t k, int64_t begin, int64_t end, uint32_t* out) {
  const int64_t first = s.offset + k * s.row_stride + begin * s.col_stride, count = end - begin;
  switch (s.stored) {
    case Stored::kF32:
      for (int64_t i = 0; i < count; ++i) out[i] = static_cast<const uint32_t*>(s.data)[first + i * s.col_stride];
      break;
    case Stored::kBF16:
    case Stored::kF16:
      for (int64_t i = 0; i < count; ++i) out[i] = static_cast<const uint16_t*>(s.data)[first + i * s.col_stride];
      break;
    case Stored::kI8:
    case Stored::kByte:
      for (int64_t i = 0; i < count; ++i) out[i] = static_cast<const uint8_t*>(s.data)[first + i * s.col_stride];
      break;
    case Stored::kNibble:
      for (int64_t i = 0; i < count; ++i) out[i] = CodeAt(s, k, begin + i);
  }
}

void PackPanel(const FloatSource& b, const Plan& plan, int64_t panel, int64_t panel_bytes, uint8_t* out) {
  const int64_t bytes = BlockBytes(plan.packing), steps = BlockSteps(plan.packing);
  std::memset(out, 0, static_cast<size_t>(panel_bytes));
  const int64_t width = PanelCols(plan.packing), begin = panel * width, end = std::min(begin + width, b.cols);
  CodePlace place[2][64];
  for (int64_t i = 0; i < width; ++i) {
    for (int64_t j = 0; j < steps; ++j) place[j][i] = PlaceOf(plan.packing, i, j);
  }
  const auto offset = static_cast<uint8_t>(plan.offset);
  const int64_t count = end - begin;
  uint32_t codes[64];
  for (int64_t k = 0; k < b.rows; ++k) {
    uint8_t* block = out + k / steps * bytes;
    const CodePlace* at = place[k % steps];
    ReadCodes(b, k, begin, end, codes);
    if (plan.packing == Packing::kF32) {
      std::memcpy(block, codes, static_cast<size_t>(count) * 4);
    } else if (plan.packing == Packing::kBF16 || plan.packing == Packing::kF16) {
      for (int64_t i = 0; i < count; ++i) {
        const auto half = static_cast<uint16_t>(codes[i]);
        std::memcpy(block + 2 * i, &half, 2);
      }
    } else if (IsNibble(plan.packing)) {
      for (int64_t i = 0; i < count; ++i) {
        const int nibble = plan.code[codes[i]] & 15;
        block[at[i].byte] = static_cast<uint8_t>(block[at[i].byte] | nibble << (at[i].upper ? 4 : 0));
      }
    } else {
      for (int64_t i = 0; i < count; ++i) block[at[i].byte] = plan.code[codes[i]];
      // The signed columns of a block.
      for (int64_t i = 24; i < count && plan.packing == Packing::kOffsetByte; ++i) {
        block[at[i].byte] = static_cast<uint8_t>(block[at[i].byte] - offset);
      }
    }
  }
}

// Stores one value per group and column of a panel; value(g, n) is asked for columns that exist.
template <typename Value>
void PackEntries(const PackedView& view, int64_t panel, void* out, float otherwise, Value value) {
  const int64_t width = PanelCols(view.packing);
  for (int64_t g = 0; g < view.groups; ++g) {
    for (int64_t i = 0; i < width; ++i) {
      const int64_t n = panel * width + i, at = (panel * view.groups + g) * width + i;
      const float entry = n < view.cols ? value(g, n) : otherwise;
      if (view.short_scales) {
        static_cast<uint16_t*>(out)[at] = static_cast<uint16_t>(std::bit_cast<uint32_t>(entry) >> 16);
      } else {
        static_cast<float*>(out)[at] = entry;
      }
    }
  }
}

int64_t Panels(const PackedView& view) {
  const int64_t width = PanelCols(view.packing);
  return (view.cols + width - 1) / width;
}

bool IsOffset(Packing packing) {
  return packing == Packing::kOffsetByte || packing == Packing::kOffsetNibble || packing == Packing::kOffsetLookup;
}

float EntryOf(const PackedView& view, const void* entries, int64_t k, int64_t n) {
  const int64_t width = PanelCols(view.packing);
  const int64_t at = (n / width * view.groups + (k + view.first) / view.group) * width + n % width;
  if (view.short_scales) return BF16ToF32(static_cast<const uint16_t*>(entries)[at]);
  return static_cast<const float*>(entries)[at];
}

void Check(const FloatSource& b) {
  if (b.rows < 0 || b.cols < 0) ThrowUsage("PackWeights: b is [{}, {}]", b.rows, b.cols);
  if ((b.stored == Stored::kByte || b.stored == Stored::kNibble) && b.table == nullptr) {
    ThrowUsage("PackWeights: b holds codes but has no table of their values");
  }
  if (b.scales.zero_point != nullptr && b.scales.scale == nullptr) {
    ThrowUsage("PackWeights: b has zero points without scales");
  }
}

// The decoded code of a panel's byte, without zero point and scale.
float DecodedCode(const PackedView& view, const uint8_t* at, bool upper, int64_t n) {
  const int nibble = upper ? *at >> 4 : *at & 15;
  float value = 0;
  uint16_t half = 0;
  switch (view.packing) {
    case Packing::kF32:
      std::memcpy(&value, at, 4);
      return value;
    case Packing::kBF16:
      std::memcpy(&half, at, 2);
      return BF16ToF32(half);
    case Packing::kF16:
      std::memcpy(&half, at, 2);
      return F16ToF32(half);
    case Packing::kTableByte:
      return view.table.value[*at];
    case Packing::kHalfByte:  // the factor is in the scale, if there is one
      return view.has_scales ? view.table.value[*at] / view.table.half_factor : view.table.value[*at];
    case Packing::kOffsetByte:
      if (n >= 24) return static_cast<float>(static_cast<int8_t>(*at)) * view.unit;
      return (static_cast<float>(*at) - view.offset) * view.unit;
    case Packing::kOffsetNibble:
      return (static_cast<float>(nibble) - view.offset) * view.unit;
    case Packing::kOffsetLookup:
      return (view.table.value[nibble] - view.offset) * view.unit;
    case Packing::kNibbleTable:
      return view.table.value[nibble];
  }
  return 0;
}

}  // namespace

int64_t PackedWeights::bytes() const {
  const int64_t panels = Panels(view_);
  const int64_t entries = panels * view_.groups * PanelCols(view_.packing) * (view_.short_scales ? 2 : 4);
  return panels * view_.PanelBytes() + (view_.has_scales ? entries : 0) + (view_.has_zero_points ? entries : 0);
}

PackedWeights PackWeights(ThreadPool& pool, const FloatSource& b) {
  Check(b);
  const Groups groups(b);
  const Plan plan = PlanOf(pool, b, groups);
  PackedWeights weights;
  PackedView& view = weights.view_;
  view.packing = plan.packing;
  view.depth = b.rows, view.cols = b.cols;
  view.table = plan.table;
  view.offset = plan.offset, view.unit = plan.unit;
  view.groups = groups.count, view.group = groups.group, view.first = groups.first;
  view.has_scales = b.scales.scale != nullptr || IsOffset(plan.packing);
  view.has_zero_points = b.scales.zero_point != nullptr;
  view.short_scales = groups.AllScales([&](float s) { return FitsBF16(s * plan.factor); }) &&
                      groups.AllZeroPoints([](float z) { return FitsBF16(z); });
  const int64_t panels = Panels(view);
  const size_t entries =
      static_cast<size_t>(panels * groups.count * PanelCols(view.packing) * (view.short_scales ? 2 : 4));
  weights.codes_ = Buffer(static_cast<size_t>(panels * view.PanelBytes()));
  if (view.has_scales) weights.scales_ = Buffer(entries);
  if (view.has_zero_points) weights.zero_points_ = Buffer(entries);
  auto* codes = static_cast<uint8_t*>(weights.codes_.data());
  pool.ParallelFor(panels, 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      PackPanel(b, plan, p, view.PanelBytes(), codes + p * view.PanelBytes());
      if (view.has_scales) {
        PackEntries(view, p, weights.scales_.data(), 1,
                    [&](int64_t g, int64_t n) { return groups.Scale(g, n) * plan.factor; });
      }
      if (view.has_zero_points) {
        PackEntries(view, p, weights.zero_points_.data(), 0,
                    [&](int64_t g, int64_t n) { return groups.At(b.scales.zero_point, g, n); });
      }
    }
  });
  view.codes = codes;
  view.scales = weights.scales_.data();
  view.zero_points = weights.zero_points_.data();
  return weights;
}

float ValueAt(const PackedWeights& weights, int64_t k, int64_t n) {
  const PackedView& view = weights.view();
  const int64_t width = PanelCols(view.packing);
  const int64_t steps = BlockSteps(view.packing);
  const CodePlace place = PlaceOf(view.packing, n % width, k % steps);
  const uint8_t* block = view.codes + n / width * view.PanelBytes() + k / steps * BlockBytes(view.packing);
  float value = DecodedCode(view, block + place.byte, place.upper, n % width);
  if (!view.has_scales) return value;
  if (view.has_zero_points) value -= EntryOf(view, view.zero_points, k, n);
  return value * EntryOf(view, view.scales, k, n);
}

}  // namespace octavo::kernels
