// Size arithmetic that cannot wrap: for shapes, offsets and counts that come from files, users or other processes.
// Returns nullopt instead of a wrapped number; the caller knows what to say about it.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "octavo/base/check.h"

namespace octavo {

template <std::integral T>
constexpr std::optional<T> CheckedAdd(T a, std::type_identity_t<T> b) {
  T result;
  if (__builtin_add_overflow(a, b, &result)) return std::nullopt;
  return result;
}

template <std::integral T>
constexpr std::optional<T> CheckedSub(T a, std::type_identity_t<T> b) {
  T result;
  if (__builtin_sub_overflow(a, b, &result)) return std::nullopt;
  return result;
}

template <std::integral T>
constexpr std::optional<T> CheckedMul(T a, std::type_identity_t<T> b) {
  T result;
  if (__builtin_mul_overflow(a, b, &result)) return std::nullopt;
  return result;
}

// The number of elements of a shape; 1 for a scalar. nullopt for a negative dimension, and for a product that overflows
// even if a later dimension is 0: such a shape is an attack or a bug, not an empty tensor.
constexpr std::optional<int64_t> CheckedProduct(std::span<const int64_t> shape) {
  int64_t product = 1;
  bool empty = false;
  for (const int64_t dimension : shape) {
    if (dimension < 0) return std::nullopt;
    if (dimension == 0) {
      empty = true;
      continue;
    }
    const std::optional<int64_t> next = CheckedMul(product, dimension);
    if (!next) return std::nullopt;
    product = *next;
  }
  return empty ? 0 : product;
}

// The same number in another integer type, if it fits.
template <std::integral To, std::integral From>
constexpr std::optional<To> CheckedCast(From value) {
  if (!std::in_range<To>(value)) return std::nullopt;
  return static_cast<To>(value);
}

// For numbers that fit by construction: a failure is a bug of the product.
template <std::integral To, std::integral From>
constexpr To Narrow(From value) {
  OCTAVO_CHECK(std::in_range<To>(value));
  return static_cast<To>(value);
}

}  // namespace octavo
