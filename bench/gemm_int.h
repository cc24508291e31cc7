// What the integer families of `bench gemm` share: codes, views of operands as a shape stores them, and the check of a
// scaled result on sampled outputs.
#pragma once

#include <cmath>
#include <memory>
#include <random>
#include <string>

#include "bench/gemm.h"
#include "octavo/kernels/view.h"
#include "octavo/kernels/workspace.h"

namespace octavo::bench {

// A generator of all codes low … high, the same every time.
inline auto AnyCode(uint32_t seed, int low = -128, int high = 127) {
  return [state = seed * 7919u + 1, low, high](int64_t) mutable {
    state = state * 1664525u + 1013904223u;
    return static_cast<int8_t>(low + static_cast<int>((state >> 8) % static_cast<uint32_t>(high - low + 1)));
  };
}

// Values of about unit size with fractions.
inline auto AnyFloat(uint32_t seed) {
  return [state = seed * 7919u + 1](int64_t) mutable {
    state = state * 1664525u + 1013904223u;
    return (static_cast<float>(state >> 8) * 0x1p-24f - 0.5f) * 2.0f;
  };
}

template <typename T>
kernels::MatrixView<const T> LeftView(const Shape& s, const T* a) {
  return s.a_transposed() ? kernels::RowMajor(a, s.k, s.m).Transposed() : kernels::RowMajor(a, s.m, s.k);
}
template <typename T>
kernels::MatrixView<const T> RightView(const Shape& s, const T* b) {
  return s.b_transposed() ? kernels::RowMajor(b, s.n, s.k).Transposed() : kernels::RowMajor(b, s.k, s.n);
}

inline Contender IntContender(const Shape& shape, std::string name, std::string family, double weight_bytes) {
  Contender contender;
  contender.name = std::move(name);
  contender.family = std::move(family);
  contender.limit = Limit::kMadd;
  contender.macs = shape.macs();
  contender.bytes = weight_bytes + static_cast<double>(shape.m) * static_cast<double>(shape.k) +
                    4.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n);
  return contender;
}

// want(i, j) computes an output again from the sources; it must equal found(i, j) bit for bit.
template <typename Want, typename Found>
Verdict SampledOutputs(const Shape& s, int samples, Want&& want, Found&& found) {
  std::mt19937_64 engine(11);
  int wrong = 0;
  for (int sample = 0; sample < samples; ++sample) {
    const int64_t i = sample == 0 ? s.m - 1 : static_cast<int64_t>(engine() % static_cast<uint64_t>(s.m));
    const int64_t j = sample == 0 ? s.n - 1 : static_cast<int64_t>(engine() % static_cast<uint64_t>(s.n));
    wrong += want(i, j) != found(i, j);
  }
  if (wrong == 0) return {true, 0, "bits of the reference"};
  return {false, static_cast<double>(wrong) / samples, std::to_string(wrong) + " of the sampled outputs differ"};
}

}  // namespace octavo::bench
