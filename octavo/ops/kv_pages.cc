#include "octavo/ops/kv_pages.h"

namespace octavo::ops {
namespace {

int64_t VectorBytes(Format format, int64_t width) { return (width * Info(format).bits + 7) / 8; }

}  // namespace

int64_t KvPageBytes(const KvFormat& format, int64_t heads, int64_t width) {
  return kPageTokens * heads * VectorBytes(format.format, width);
}

int64_t KvPageScales(const KvFormat& format, int64_t heads) {
  if (!format.quantized()) return 0;
  return format.scale_per_head ? kPageTokens * heads : kPageTokens;
}

kernels::KvSide KvSideOf(const KvFormat& format, const KvSidePages& pages) {
  kernels::KvSide side;
  side.data = pages.data;
  side.format = format.format;
  side.packed = format.format == Format::kInt4;
  side.key_stride = VectorBytes(format.format, pages.width);
  side.head_stride = kPageTokens * side.key_stride;
  side.page_stride = pages.heads * side.head_stride;
  side.scale = pages.scale;
  side.scale_key_stride = 1;
  side.scale_head_stride = format.scale_per_head ? kPageTokens : 0;
  side.scale_page_stride = KvPageScales(format, pages.heads);
  return side;
}

kernels::KvSide KvSideOfTokens(const KvFormat& format, int64_t heads, int64_t width, const std::byte* data,
                               const float* scale) {
  kernels::KvSide side;
  side.data = data;
  side.format = format.format;
  side.packed = format.format == Format::kInt4;
  side.head_stride = VectorBytes(format.format, width);
  side.key_stride = heads * side.head_stride;
  side.scale = scale;
  side.scale_key_stride = format.scale_per_head ? heads : 1;
  side.scale_head_stride = format.scale_per_head ? 1 : 0;
  return side;
}

}  // namespace octavo::ops
