// Eight elements at a time, and the 16 lanes of rule R3 as two registers. Only for *_avx2.cc units: everything has
// internal linkage, so that no code made with their flags can be linked into others.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "octavo/kernels/rows.h"

namespace octavo::kernels {
namespace {

// All-ones in the first `count` of eight 32-bit lanes.
inline __m256i FirstLanes(int64_t count) {
  const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), index);
}

struct F32x8 {
  using Type = float;
  static __m256 Load(const Type* p) { return _mm256_loadu_ps(p); }
  static void Store(Type* p, __m256 v) { _mm256_storeu_ps(p, v); }
  // The first `count` (1 … 7) elements; the other lanes read as +0 and are not written.
  static __m256 LoadPart(const Type* p, int64_t count) { return _mm256_maskload_ps(p, FirstLanes(count)); }
  static void StorePart(Type* p, __m256 v, int64_t count) { _mm256_maskstore_ps(p, FirstLanes(count), v); }
  static __m256 Round(__m256 v) { return v; }  // to the precision of Type
};

// Nearest even on the upper 16 bits; NaN becomes the quiet NaN of the same sign. The code is in the upper half.
inline __m256i RoundToUpperHalf(__m256 v) {
  const __m256i bits = _mm256_castps_si256(v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256 unordered = _mm256_cmp_ps(v, v, _CMP_UNORD_Q);
  if (_mm256_movemask_ps(unordered) == 0) [[likely]]
    return rounded;  // a branch never taken is cheaper than a blend
  const __m256i quiet = _mm256_or_si256(_mm256_and_si256(bits, _mm256_set1_epi32(static_cast<int>(0x80000000u))),
                                        _mm256_set1_epi32(0x7fc00000));
  return _mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(unordered));
}

inline __m128i PackUpperHalves(__m256i v) {
  const __m256i shifted = _mm256_srli_epi32(v, 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(shifted), _mm256_extracti128_si256(shifted, 1));
}

// 16-bit elements have no masked move: parts of eight go through the stack.
inline __m128i LoadPart16(const uint16_t* p, int64_t count) {
  alignas(16) uint16_t buffer[8] = {};
  for (int64_t i = 0; i < count; ++i) buffer[i] = p[i];
  return _mm_load_si128(reinterpret_cast<const __m128i*>(buffer));
}

inline void StorePart16(uint16_t* p, __m128i v, int64_t count) {
  alignas(16) uint16_t buffer[8];
  _mm_store_si128(reinterpret_cast<__m128i*>(buffer), v);
  for (int64_t i = 0; i < count; ++i) p[i] = buffer[i];
}

struct Bf16x8 {
  using Type = uint16_t;
  static __m256 Widen(__m128i v) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16)); }
  static __m128i Narrow(__m256 v) { return PackUpperHalves(RoundToUpperHalf(v)); }
  static __m256 Load(const Type* p) { return Widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
  static void Store(Type* p, __m256 v) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), Narrow(v)); }
  static __m256 LoadPart(const Type* p, int64_t count) { return Widen(LoadPart16(p, count)); }
  static void StorePart(Type* p, __m256 v, int64_t count) { StorePart16(p, Narrow(v), count); }
  static __m256 Round(__m256 v) {
    return _mm256_castsi256_ps(_mm256_and_si256(RoundToUpperHalf(v), _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
  }
};

struct F16x8 {
  using Type = uint16_t;
  static __m256 Widen(__m128i v) { return _mm256_cvtph_ps(v); }
  static __m128i Narrow(__m256 v) {
    // The conversion keeps NaN payloads; the reference has one quiet NaN per sign.
    const __m128i code = _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m128i magnitude = _mm_and_si128(code, _mm_set1_epi16(0x7fff));
    const __m128i is_nan = _mm_cmpgt_epi16(magnitude, _mm_set1_epi16(0x7c00));
    const __m128i quiet =
        _mm_or_si128(_mm_and_si128(code, _mm_set1_epi16(static_cast<short>(0x8000))), _mm_set1_epi16(0x7e00));
    return _mm_blendv_epi8(code, quiet, is_nan);
  }
  static __m256 Load(const Type* p) { return Widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
  static void Store(Type* p, __m256 v) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), Narrow(v)); }
  static __m256 LoadPart(const Type* p, int64_t count) { return Widen(LoadPart16(p, count)); }
  static void StorePart(Type* p, __m256 v, int64_t count) { StorePart16(p, Narrow(v), count); }
};

// Calls work(element) with the element type of f32 or bf16 rows.
template <typename Work>
inline void WithElement8(DType dtype, Work work) {
  if (dtype == DType::kF32) {
    work(F32x8());
  } else {
    work(Bf16x8());
  }
}

template <typename E>
inline const typename E::Type* RowOf(const ConstRows& m, int64_t row) {
  return static_cast<const typename E::Type*>(m.data) + row * m.row_stride;
}
template <typename E>
inline typename E::Type* RowOf(const MutRows& m, int64_t row) {
  return static_cast<typename E::Type*>(m.data) + row * m.row_stride;
}

// Full and part are the two ways to touch eight elements: work(at, io) with io.Load<E>(p), io.Store<E>(p, v).
struct WholeEight {
  template <typename E>
  __m256 Load(const typename E::Type* p) const {
    return E::Load(p);
  }
  template <typename E>
  void Store(typename E::Type* p, __m256 v) const {
    E::Store(p, v);
  }
  // Zero in the lanes that hold no element.
  __m256 Keep(__m256 v) const { return v; }
};

struct PartOfEight {
  int64_t count;
  template <typename E>
  __m256 Load(const typename E::Type* p) const {
    return E::LoadPart(p, count);
  }
  template <typename E>
  void Store(typename E::Type* p, __m256 v) const {
    E::StorePart(p, v, count);
  }
  __m256 Keep(__m256 v) const { return _mm256_and_ps(v, _mm256_castsi256_ps(FirstLanes(count))); }
};

// work(at, io) for each eight elements of [0, n), the last ones possibly a part.
template <typename Work>
inline void ForEights(int64_t n, Work work) {
  int64_t at = 0;
  for (; at + 8 <= n; at += 8) work(at, WholeEight());
  if (at < n) work(at, PartOfEight{n - at});
}

// work(at, io, half) with half = 0, 1, 0, 1, …: elements at … at+7 belong to lanes 8 * half … 8 * half + 7.
template <typename Work>
inline void ForLanes(int64_t n, Work work) {
  int64_t at = 0;
  for (; at + 16 <= n; at += 16) {
    work(at, WholeEight(), 0);
    work(at + 8, WholeEight(), 1);
  }
  if (at + 8 <= n) {
    work(at, WholeEight(), 0);
    if (at + 8 < n) work(at + 8, PartOfEight{n - at - 8}, 1);
  } else if (at < n) {
    work(at, PartOfEight{n - at}, 0);
  }
}

// Sixteen float lanes (lanes.h). Lanes without an element may receive +0: only the sign of a zero sum could tell.
struct Lanes16 {
  __m256 half[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};

  float Fold() const {
    const __m256 eight = _mm256_add_ps(half[0], half[1]);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two))) + 0.0f;
  }
};

}  // namespace
}  // namespace octavo::kernels
