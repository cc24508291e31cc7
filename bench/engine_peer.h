// llama.cpp through its installed programs, as the peer of `./run bench engine`: each call starts one, waits for it and
// reads the JSON that it prints.
#pragma once

#include <string>

namespace octavo::bench {

class LlamaPeer {
 public:
  // Paths of llama-bench and llama-batched-bench; empty: not there, and what needs it gives 0.
  LlamaPeer(std::string bench, std::string batched, int threads)
      : bench_(std::move(bench)), batched_(std::move(batched)), threads_(threads) {}

  bool any() const { return !bench_.empty(); }

  // All in tokens per second, of one run after a warm-up.
  double Prefill(const std::string& model, int64_t tokens) const;
  double Decode(const std::string& model, int steps) const;                   // 128 tokens behind it
  double DecodeMany(const std::string& model, int streams, int steps) const;  // likewise

 private:
  std::string bench_, batched_;
  int threads_;
};

}  // namespace octavo::bench
