// The cases behind selftest.h: one function per family, in self_test_*.cc. A new family is a function here and a line
// in the table of selftest.cc.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "octavo/base/thread_pool.h"
#include "octavo/kernels/isa.h"
#include "octavo/kernels/sample_rows.h"

namespace octavo::kernels {

// Counts comparisons of bytes and remembers the first that differed.
class SelfTestLog {
 public:
  void Compare(const std::string& what, const void* reference, const void* fast, size_t bytes) {
    ++compared_;
    if (bytes == 0 || std::memcmp(reference, fast, bytes) == 0) return;
    if (failed_++ > 0) return;
    const auto *a = static_cast<const uint8_t*>(reference), *b = static_cast<const uint8_t*>(fast);
    size_t at = 0;
    while (a[at] == b[at]) ++at;
    first_ = what + ": byte " + std::to_string(at) + " of " + std::to_string(bytes) + " differs from the reference";
  }
  template <typename T>
  void Compare(const std::string& what, const std::vector<T>& reference, const std::vector<T>& fast) {
    Compare(what, reference.data(), fast.data(), reference.size() * sizeof(T));
  }
  void Compare(const std::string& what, const SampleRows& reference, const SampleRows& fast) {
    Compare(what, reference.bytes(), fast.bytes());
  }

  bool passed() const { return failed_ == 0 && compared_ > 0; }
  std::string detail() const {
    if (compared_ == 0) return "nothing was compared";
    if (failed_ == 0) return std::to_string(compared_) + " results equal to the reference";
    return first_ + (failed_ > 1 ? " (and " + std::to_string(failed_ - 1) + " more results)" : "");
  }

 private:
  int compared_ = 0, failed_ = 0;
  std::string first_;
};

void SelfTestMath(ThreadPool& pool, Isa isa, SelfTestLog& log);
void SelfTestNorm(ThreadPool& pool, Isa isa, SelfTestLog& log);
void SelfTestRope(ThreadPool& pool, Isa isa, SelfTestLog& log);
void SelfTestActivation(ThreadPool& pool, Isa isa, SelfTestLog& log);
void SelfTestElementwise(ThreadPool& pool, Isa isa, SelfTestLog& log);
void SelfTestLoss(ThreadPool& pool, Isa isa, SelfTestLog& log);
void SelfTestEmbedding(ThreadPool& pool, Isa isa, SelfTestLog& log);
void SelfTestReductions(ThreadPool& pool, Isa isa, SelfTestLog& log);
void SelfTestOptimizer(ThreadPool& pool, Isa isa, SelfTestLog& log);
void SelfTestExperts(ThreadPool& pool, Isa isa, SelfTestLog& log);
void SelfTestMatMulF32(ThreadPool& pool, Isa isa, SelfTestLog& log);
void SelfTestMatMulI8(ThreadPool& pool, Isa isa, SelfTestLog& log);
void SelfTestMatMulU4(ThreadPool& pool, Isa isa, SelfTestLog& log);
void SelfTestAttention(ThreadPool& pool, Isa isa, SelfTestLog& log);
void SelfTestQuantize(ThreadPool& pool, Isa isa, SelfTestLog& log);

}  // namespace octavo::kernels
