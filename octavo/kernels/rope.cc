#include "octavo/kernels/rope.h"

#include "octavo/base/error.h"
#include "octavo/base/thread_pool.h"
#include "octavo/kernels/element.h"
#include "octavo/kernels/rows.h"

namespace octavo::kernels {
namespace {

// Where pair i of n has its two features.
struct PairPlace {
  int64_t a, b;
};
inline PairPlace PlaceOf(bool halves, int64_t i, int64_t n) {
  return halves ? PairPlace{i, i + n} : PairPlace{2 * i, 2 * i + 1};
}

void CheckArgs(const RopeArgs& args) {
  if (args.dtype != DType::kF32 && args.dtype != DType::kBF16) {
    ThrowUsage("Rope: the rows are {}, expected f32 or bf16", NameOf(args.dtype));
  }
  if (args.tokens < 0 || args.heads < 0 || args.head_dim < 0) {
    ThrowUsage("Rope: shape [{}, {}, {}]", args.tokens, args.heads, args.head_dim);
  }
  if (args.rotary_dim < 0 || args.rotary_dim % 2 != 0 || args.rotary_dim > args.head_dim) {
    ThrowUsage("Rope: rotary_dim is {} of {} features, expected an even number that fits", args.rotary_dim,
               args.head_dim);
  }
  const int64_t count = args.tokens * args.heads * args.head_dim;
  CheckPresent("Rope", "in", args.in, count);
  CheckPresent("Rope", "out", args.out, count);
  CheckPresent("Rope", "position", args.position, args.tokens);
  if (args.in == args.out && count > 0) {
    if (args.in_token_stride != args.out_token_stride || args.in_head_stride != args.out_head_stride) {
      ThrowUsage("Rope: in and out share memory with different strides");
    }
    if (args.layout == RopeLayout::kPairsToHalves) {
      ThrowUsage("Rope: pairs to halves moves features and cannot work in place");
    }
  }
  for (int64_t t = 0; t < args.tokens; ++t) {
    const int64_t row = args.position[t] - args.table_first;
    if (row < 0 || row >= args.table_rows) {
      ThrowUsage("Rope: token {} has position {}, the table holds {} … {}", t, args.position[t], args.table_first,
                 args.table_first + args.table_rows - 1);
    }
  }
  CheckPresent("Rope", "cos", args.cos, args.tokens * args.rotary_dim);
  CheckPresent("Rope", "sin", args.sin, args.tokens * args.rotary_dim);
}

}  // namespace

void RopeRef(const RopeArgs& args, int64_t begin, int64_t end) {
  const int64_t pairs = args.rotary_dim / 2;
  const bool backward = args.direction == RopeDirection::kBackward;
  const bool mixed = args.layout == RopeLayout::kPairsToHalves;
  const bool in_halves = args.layout == RopeLayout::kHalves || (mixed && backward);
  const bool out_halves = args.layout == RopeLayout::kHalves || (mixed && !backward);
  WithElement(args.dtype, [&](auto element) {
    using E = decltype(element);
    using T = typename E::Type;
    for (int64_t t = begin; t < end; ++t) {
      const float* cos = args.cos + (args.position[t] - args.table_first) * pairs;
      const float* sin = args.sin + (args.position[t] - args.table_first) * pairs;
      for (int64_t h = 0; h < args.heads; ++h) {
        const T* in = static_cast<const T*>(args.in) + t * args.in_token_stride + h * args.in_head_stride;
        T* out = static_cast<T*>(args.out) + t * args.out_token_stride + h * args.out_head_stride;
        for (int64_t i = 0; i < pairs; ++i) {
          const PairPlace from = PlaceOf(in_halves, i, pairs), to = PlaceOf(out_halves, i, pairs);
          const float a = E::Load(in[from.a]), b = E::Load(in[from.b]);
          const float ac = a * cos[i], bs = b * sin[i], bc = b * cos[i], as = a * sin[i];
          out[to.a] = E::Store(backward ? ac + bs : ac - bs);
          out[to.b] = E::Store(backward ? bc - as : bc + as);
        }
        for (int64_t c = args.rotary_dim; c < args.head_dim; ++c) out[c] = in[c];
      }
    }
  });
}

void Rope(ThreadPool& pool, Isa isa, const RopeArgs& args) {
  CheckArgs(args);
  if (args.heads == 0 || args.head_dim == 0) return;
  pool.ParallelFor(args.tokens, RowGrain(args.heads * args.head_dim), [&](int64_t begin, int64_t end) {
    isa >= Isa::kAvx2 ? RopeAvx2(args, begin, end) : RopeRef(args, begin, end);
  });
}

}  // namespace octavo::kernels
