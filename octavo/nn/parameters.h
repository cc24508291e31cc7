// Who owns a model's parameters, and how each is initialized. A model has one ParameterSet; modules are built with a
// Builder, which knows the path they stand at, and keep pointers into the set. Used by nn modules and models; the
// loader, the optimizer and the initializer walk the set.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/ops/parameter.h"

namespace octavo::nn {

// How a fresh parameter is drawn. Normal laws have variance scale / fan_in; the truncated one is cut at two standard
// deviations and widened so that its variance is the same.
struct Init {
  enum class Law : uint8_t { kZeros, kOnes, kNormal, kTruncatedNormal } law = Law::kZeros;
  int64_t fan_in = 1;
  double scale = 1;
  double divisor = 1;  // values are divided by this at the end (query kernels: sqrt(head_dim))

  static Init Zeros() { return {Law::kZeros}; }
  static Init Ones() { return {Law::kOnes}; }
  static Init Normal(int64_t fan_in, double scale = 1) { return {Law::kNormal, fan_in, scale}; }
  static Init TruncatedNormal(int64_t fan_in, double scale = 1) { return {Law::kTruncatedNormal, fan_in, scale}; }
};

class ParameterSet {
 public:
  ParameterSet() = default;
  ParameterSet(const ParameterSet&) = delete;
  ParameterSet& operator=(const ParameterSet&) = delete;

  // A new parameter, meta until it is loaded or initialized. Two of one name are a bug.
  ops::Parameter* Make(const std::string& name, const Shape& shape, DType dtype, const Init& init);

  std::span<ops::Parameter* const> all() const { return order_; }  // in the order they were made
  ops::Parameter* Find(std::string_view name) const;               // null: none
  const Init& InitOf(const ops::Parameter& parameter) const;

 private:
  struct Entry {
    ops::Parameter parameter;
    Init init;
  };
  std::deque<Entry> entries_;
  std::vector<ops::Parameter*> order_;
  std::map<std::string, Entry*, std::less<>> by_name_;
};

// A place in the tree: parameters made through it get its path before their names.
class Builder {
 public:
  Builder(ParameterSet& set, std::string path, DType weight_dtype, DType dtype)
      : set_(set), path_(std::move(path)), weight_dtype_(weight_dtype), dtype_(dtype) {}

  Builder Child(std::string_view name) const;
  ops::Parameter* Make(std::string_view name, const Shape& shape, const Init& init) const;
  const std::string& path() const { return path_; }
  DType dtype() const { return dtype_; }  // of the computation

 private:
  ParameterSet& set_;
  std::string path_;
  DType weight_dtype_, dtype_;
};

}  // namespace octavo::nn
