// The key-value cache as attention sees it: a plain struct of memory in pages of 64 keys. The engine owns the memory,
// decides which sequence has which pages (Sequence::page_table) and counts bytes; ops::Attention writes the keys and
// values of new tokens and reads all of them. Also how a cache is stored, which the trainer can apply without pages.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "octavo/kernels/attention_types.h"
#include "octavo/numerics/format.h"

namespace octavo::ops {

inline constexpr int64_t kPageTokens = kernels::kKeyBlock;

// float32, bfloat16, or int8, int4 and float8_e4m3fn with one scale per token, or per token and head.
struct KvFormat {
  Format format = Format::kF32;
  bool scale_per_head = false;

  bool quantized() const { return format != Format::kF32 && format != Format::kBF16; }
  bool operator==(const KvFormat&) const = default;
};

// One layer's keys, or its values: page p starts at data + p * page_bytes; inside, heads are apart and the 64 vectors
// of a head together, so that a step streams them. Scales likewise.
struct KvSidePages {
  int64_t heads = 0, width = 0;
  std::byte* data = nullptr;
  float* scale = nullptr;  // null for float formats
};

struct KvLayerPages {
  KvSidePages key, value;
};

struct KvPages {
  KvFormat format;
  int64_t pages = 0;
  std::map<std::string, KvLayerPages, std::less<>> layers;  // by the path of the attention op
};

// Bytes of one page of codes (or floats), and floats of its scales.
int64_t KvPageBytes(const KvFormat& format, int64_t heads, int64_t width);
int64_t KvPageScales(const KvFormat& format, int64_t heads);

// As the kernels read it.
kernels::KvSide KvSideOf(const KvFormat& format, const KvSidePages& pages);
// The same for keys that follow each other without pages: token, head, vector.
kernels::KvSide KvSideOfTokens(const KvFormat& format, int64_t heads, int64_t width, const std::byte* data,
                               const float* scale);

}  // namespace octavo::ops
