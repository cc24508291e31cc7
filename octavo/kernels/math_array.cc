#include "octavo/kernels/math_array.h"

#include "octavo/kernels/math.h"
#if defined(__x86_64__)
#include "octavo/kernels/math_array_avx2.h"
#endif

namespace octavo::kernels {
namespace {

using ArrayFunction = void (*)(const float*, float*, int64_t);

template <float (*f)(float)>
void Reference(const float* x, float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = f(x[i]);
}

struct Row {
  std::string_view name;
  ArrayFunction reference, avx2;
};

#if defined(__x86_64__)
#define OCTAVO_AVX2_OR_NULL(name) name##Avx2
#else
#define OCTAVO_AVX2_OR_NULL(name) nullptr
#endif

// In the order of MathFunction.
constexpr Row kRows[] = {
    {"exp", Reference<Exp>, OCTAVO_AVX2_OR_NULL(Exp)},    {"log", Reference<Log>, OCTAVO_AVX2_OR_NULL(Log)},
    {"tanh", Reference<Tanh>, OCTAVO_AVX2_OR_NULL(Tanh)}, {"sigmoid", Reference<Sigmoid>, OCTAVO_AVX2_OR_NULL(Sigmoid)},
    {"erf", Reference<Erf>, OCTAVO_AVX2_OR_NULL(Erf)},    {"sin", Reference<Sin>, OCTAVO_AVX2_OR_NULL(Sin)},
    {"cos", Reference<Cos>, OCTAVO_AVX2_OR_NULL(Cos)},
};
#undef OCTAVO_AVX2_OR_NULL

const Row& RowOf(MathFunction function) { return kRows[static_cast<int>(function)]; }

}  // namespace

std::string_view NameOf(MathFunction function) { return RowOf(function).name; }

void ApplyMath(MathFunction function, Isa isa, const float* x, float* y, int64_t count) {
  const Row& row = RowOf(function);
  (isa >= Isa::kAvx2 ? row.avx2 : row.reference)(x, y, count);
}

}  // namespace octavo::kernels
