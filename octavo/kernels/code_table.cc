#include "octavo/kernels/code_table.h"

#include <bit>
#include <cmath>
#include <span>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/numerics/half.h"

namespace octavo::kernels {
namespace {

// Looks for a shift and a factor that give the table through f16. Codes where they do not (NaN, infinities, the NaN in
// the place of -0) must lie at the upper end of both halves or be the single code 0x80.
void FindHalf(CodeTable& table) {
  for (int shift = 3; shift <= 8 && !table.has_half; ++shift) {
    // The factor that maps the first normal-looking code right; a power of two.
    for (int exponent = -24; exponent <= 24; ++exponent) {
      const float factor = std::ldexp(1.0f, exponent);
      int special_from = 128;
      bool fits = true;
      auto matches = [&](int code) {
        const auto half = static_cast<uint16_t>((code >> 7) << 15 | (code & 127) << shift);
        if ((half & 0x7fff) != (code & 127) << shift) return false;  // runs into the sign
        const float value = F16ToF32(half) * factor;
        if (std::isnan(value) || std::isnan(table.value[code]))
          return std::isnan(value) == std::isnan(table.value[code]);
        return std::bit_cast<uint32_t>(value) == std::bit_cast<uint32_t>(table.value[code]);
      };
      for (int m = 127; m >= 1 && !(matches(m) && matches(m | 128)); --m) special_from = m;
      for (int m = 0; m < special_from && fits; ++m) fits = matches(m) && (m == 0 || matches(m | 128));
      if (!fits || special_from < 96) continue;
      table.has_half = true;
      table.half_shift = shift;
      table.half_factor = factor;
      table.special_from = special_from;
      table.special_code = matches(128) ? -1 : 128;
      break;
    }
  }
}

}  // namespace

CodeTable MakeCodeTable(const float* value, int count) {
  CodeTable table;
  for (int c = 0; c < count; ++c) table.value[c] = value[c];
  if (count == 256) FindHalf(table);
  return table;
}

const CodeTable& CodeTableOf(Format format) {
  static const std::vector<CodeTable> tables = [] {
    std::vector<CodeTable> made;
    for (const FormatInfo& info : AllFormats()) {
      CodeTable table;
      if (info.bits <= 8) {
        // A code may carry sign bits above its own (an int4 in a byte): the low bits decide.
        const std::span<const float> values = DecodeTable(info.format);
        float all[256];
        for (size_t c = 0; c < 256; ++c) {
          all[c] = values[c % values.size()];
          if (info.bits <= 4 && all[c] == 0) all[c] = 0;  // see the header
        }
        table = MakeCodeTable(all, 256);
      }
      made.push_back(table);
    }
    return made;
  }();
  const FormatInfo& info = Info(format);
  if (info.bits > 8) ThrowUsage("{} has {} bits: codes of at most 8 have a table", info.name, info.bits);
  return tables[static_cast<size_t>(&info - AllFormats().data())];
}

}  // namespace octavo::kernels
