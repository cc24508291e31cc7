// What one step of the engine gave each slot, in the reference's layout: [rows, 3] of token, valid, number of generated
// tokens, and log-probabilities beside it. A row without a request, or whose request failed, is not valid.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace octavo::engine {

struct ResultTokens {
  struct Slot {
    std::vector<int32_t> tokens;  // samples_per_slot of them: one
    std::vector<bool> valid;
    int64_t lengths = 0;  // tokens generated so far, this one included
    std::vector<float> log_prob;
    std::string error;  // why a running request is not valid
  };

  int64_t rows() const { return static_cast<int64_t>(log_prob.size()); }
  Slot GetResultAtSlot(int64_t slot) const;  // a slot that is not there is a usage error
  void Add(int32_t token, bool is_valid, int32_t length, float logp, std::string why = "");

  static constexpr std::pair<int, int> tokens_idx{0, 1}, valid_idx{1, 2}, length_idx{2, 3};
  static constexpr int samples_per_slot = 1;
  std::vector<int32_t> data;  // [rows, 3]
  std::vector<float> log_prob;
  std::vector<std::string> errors;
};

}  // namespace octavo::engine
