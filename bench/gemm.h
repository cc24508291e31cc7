// The families of `bench gemm`: each file gemm_<family>.cc makes the contenders of its family for one shape. A new
// family is one such file and one line in gemm.cc.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bench/common/harness.h"
#include "bench/common/shapes.h"
#include "octavo/base/thread_pool.h"
#include "octavo/kernels/isa.h"
#include "octavo/kernels/workspace.h"

namespace octavo::bench {

// What every contender needs; lives as long as the benchmark.
struct Bench {
  ThreadPool& pool;
  kernels::Isa isa;
  kernels::Workspace& workspace;
};

struct Family {
  std::string_view name;
  std::string_view summary;
  std::vector<Contender> (*make)(Bench&, const Shape&);  // empty: the family has nothing to say about this shape
};

// Memory for one contender's operand, in as many copies as it takes to outgrow the caches when the shape is a decode
// shape (one copy otherwise). Copies hold the same values.
template <typename T>
class Copies {
 public:
  Copies(const Shape& shape, int64_t count) : count_(count) {
    const double bytes = static_cast<double>(count) * sizeof(T);
    copies_ = shape.decode() ? static_cast<int64_t>(160e6 / bytes) + 2 : 1;
    stride_ = (count * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
    buffer_ = kernels::Buffer(static_cast<size_t>(stride_ * copies_));
  }
  T* operator[](int64_t turn) const {
    return reinterpret_cast<T*>(static_cast<char*>(buffer_.data()) + turn % copies_ * stride_);
  }
  int64_t copies() const { return copies_; }
  double bytes() const { return static_cast<double>(count_) * sizeof(T); }  // of one copy
  // Fills the first copy with fill(index) and repeats it.
  template <typename Function>
  void Fill(Function&& fill) {
    for (int64_t i = 0; i < count_; ++i) (*this)[0][i] = fill(i);
    for (int64_t c = 1; c < copies_; ++c) std::copy((*this)[0], (*this)[0] + count_, (*this)[c]);
  }

 private:
  int64_t count_, copies_, stride_;
  kernels::Buffer buffer_;
};

// The f32 operands of a shape, whole numbers from -4 to 4 so that every sum is exact: A and B as the form says, C.
struct FloatOperands {
  explicit FloatOperands(const Shape& shape);
  Copies<float> a, b;
  std::vector<float> c;
  float A(const Shape& s, int64_t i, int64_t r) const { return a[0][s.a_transposed() ? r * s.m + i : i * s.k + r]; }
  float B(const Shape& s, int64_t r, int64_t j) const { return b[0][s.b_transposed() ? j * s.k + r : r * s.n + j]; }
};

// The peers in f32 (OpenBLAS, oneDNN): they set "best fp32" for all families.
std::vector<Contender> BaselineContenders(Bench&, const Shape&);

std::vector<Contender> F32Contenders(Bench&, const Shape&);
std::vector<Contender> Fp8Contenders(Bench&, const Shape&);
std::vector<Contender> WeightContenders(Bench&, const Shape&);
std::vector<Contender> I8Contenders(Bench&, const Shape&);
std::vector<Contender> I8LinearContenders(Bench&, const Shape&);
std::vector<Contender> I8GroupedContenders(Bench&, const Shape&);
std::vector<Contender> U4Contenders(Bench&, const Shape&);

}  // namespace octavo::bench
