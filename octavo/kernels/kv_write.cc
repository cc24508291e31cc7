#include "octavo/kernels/kv_write.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/kernels/element.h"
#include "octavo/numerics/small_float.h"

namespace octavo::kernels {
namespace {

float BoundOf(Format format) {
  switch (format) {
    case Format::kInt8:
    case Format::kInt4:
    case Format::kF8E4M3FN:
      return Info(format).symmetric_bound;
    default:
      throw Error(ErrorCode::kUsage, fmt::format("a key-value cache cannot be stored as {}", Info(format).name),
                  "known: float32 bfloat16 int8 int4 float8_e4m3fn");
  }
}

// One token of one sequence.
struct Place {
  int64_t token, key;
  const AttentionSequence* sequence;
};

uint8_t* RowAt(const KvWriteArgs& args, const Place& at, int64_t head) {
  return static_cast<uint8_t*>(args.data) +
         (KvRow(args.side, *at.sequence, head, at.key) - static_cast<const uint8_t*>(args.side.data));
}

float* ScaleAt(const KvWriteArgs& args, const Place& at, int64_t head) {
  return args.scale + (KvScaleAt(args.side, *at.sequence, head, at.key) - args.side.scale);
}

template <typename E>
const typename E::Type* Input(const KvWriteArgs& args, const Place& at, int64_t head) {
  return static_cast<const typename E::Type*>(args.in.data) + at.token * args.in.token_stride +
         head * args.in.head_stride;
}

// The largest magnitude as bits: those of a NaN are larger than all others.
template <typename E>
uint32_t LargestBits(const typename E::Type* x, int64_t count) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::bit_cast<uint32_t>(E::Load(x[i])) & 0x7fffffffu);
  }
  return largest;
}

template <typename E>
float RoundAs(float value) {
  return E::Load(E::Store(value));
}

template <typename E>
class Quantizer {
 public:
  Quantizer(Format format, bool packed)
      : format_(format),
        packed_(packed),
        bound_(BoundOf(format)),
        low_(static_cast<float>(Info(format).qmin)),
        high_(static_cast<float>(Info(format).qmax)),
        small_(Format::kF8E4M3FN) {}

  float Scale(float amax) const {
    constexpr bool kNarrow = std::is_same_v<E, Bf16Element>;
    return kNarrow ? RoundAs<E>(amax / RoundAs<E>(bound_)) : amax * (1.0f / bound_);
  }

  void Write(const typename E::Type* x, int64_t width, float amax, uint8_t* to) const {
    if (amax == 0.0f) {
      std::memset(to, 0, static_cast<size_t>(packed_ ? (width + 1) / 2 : width));
      return;
    }
    const bool wide = format_ == Format::kF8E4M3FN;
    const float factor = wide ? bound_ / amax : RoundAs<E>(bound_ / amax);
    if (wide) {
      for (int64_t i = 0; i < width; ++i) to[i] = small_(E::Load(x[i]) * factor);
      return;
    }
    const auto code = [&](int64_t i) {
      const float value = RoundAs<E>(E::Load(x[i]) * factor);
      // A NaN fails both comparisons and becomes zero; its scale tells.
      const float kept = value >= low_ ? (value <= high_ ? std::nearbyint(value) : high_) : (value < low_ ? low_ : 0);
      return static_cast<uint8_t>(static_cast<int8_t>(std::max(std::min(kept, high_), low_)));
    };
    if (!packed_) {
      for (int64_t i = 0; i < width; ++i) to[i] = code(i);
      return;
    }
    for (int64_t i = 0; i + 1 < width; i += 2) to[i / 2] = static_cast<uint8_t>((code(i) & 15) | code(i + 1) << 4);
    if (width % 2 != 0) to[width / 2] = code(width - 1) & 15;
  }

 private:
  Format format_;
  bool packed_;
  float bound_, low_, high_;
  SmallFloatEncoder small_;
};

template <typename E>
void WriteQuantized(const KvWriteArgs& args, const Quantizer<E>& quantizer, const Place& at) {
  const bool per_head = args.side.scale_head_stride != 0;
  uint32_t largest = 0;
  for (int64_t head = 0; head < args.heads && !per_head; ++head) {
    largest = std::max(largest, LargestBits<E>(Input<E>(args, at, head), args.width));
  }
  for (int64_t head = 0; head < args.heads; ++head) {
    const auto* x = Input<E>(args, at, head);
    if (per_head) largest = LargestBits<E>(x, args.width);
    const float amax = std::bit_cast<float>(largest);
    quantizer.Write(x, args.width, amax, RowAt(args, at, head));
    if (per_head || head == 0) *ScaleAt(args, at, head) = quantizer.Scale(amax);
  }
}

template <typename E>
void WriteFloats(const KvWriteArgs& args, const Place& at) {
  for (int64_t head = 0; head < args.heads; ++head) {
    const auto* x = Input<E>(args, at, head);
    uint8_t* to = RowAt(args, at, head);
    if (args.side.format == Format::kF32) {
      auto* out = reinterpret_cast<float*>(to);
      for (int64_t i = 0; i < args.width; ++i) out[i] = E::Load(x[i]);
    } else {
      auto* out = reinterpret_cast<uint16_t*>(to);
      for (int64_t i = 0; i < args.width; ++i) out[i] = Bf16Element::Store(E::Load(x[i]));
    }
  }
}

template <typename E>
void WriteAll(ThreadPool& pool, const KvWriteArgs& args, const std::vector<Place>& places) {
  const bool floats = args.side.format == Format::kF32 || args.side.format == Format::kBF16;
  const auto count = static_cast<int64_t>(places.size());
  // Waking threads costs more than a few tokens.
  const int64_t grain = std::max<int64_t>(1, 16384 / std::max<int64_t>(1, args.heads * args.width));
  const auto work = [&](int64_t begin, int64_t end, auto&& one) {
    for (int64_t i = begin; i < end; ++i) one(places[static_cast<size_t>(i)]);
  };
  const auto run = [&](auto&& one) {
    if (count <= grain) return work(0, count, one);
    pool.ParallelFor(count, grain, [&](int64_t begin, int64_t end) { work(begin, end, one); });
  };
  if (floats) return run([&](const Place& at) { WriteFloats<E>(args, at); });
  const Quantizer<E> quantizer(args.side.format, args.side.packed);
  run([&](const Place& at) { WriteQuantized<E>(args, quantizer, at); });
}

}  // namespace

void WriteKv(ThreadPool& pool, const KvWriteArgs& args) {
  if (args.side.format != Format::kF32 && args.side.format != Format::kBF16) {
    BoundOf(args.side.format);
    if (args.scale == nullptr) ThrowUsage("WriteKv: {} codes but no place for scales", Info(args.side.format).name);
  }
  if (args.side.format == Format::kInt4 && !args.side.packed) ThrowUsage("WriteKv: int4 codes are stored packed");
  std::vector<Place> places;
  for (int64_t s = 0; s < args.sequence_count; ++s) {
    const AttentionSequence& one = args.sequences[s];
    for (int64_t i = 0; i < one.query_count; ++i) places.push_back({one.query_begin + i, one.position + i, &one});
  }
  WithElement(args.in.dtype, [&](auto element) { WriteAll<decltype(element)>(pool, args, places); });
}

}  // namespace octavo::kernels
