// The part of an error text that lists what is wrong with stored tensors: one line for each of the first faults, then
// how many more there are. Used by the loaders of this folder, which throw the error.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <string_view>

namespace octavo::weights {

class FaultList {
 public:
  void Add(std::string_view fault) {
    if (++count_ <= kShown) lines_ += fmt::format("  {}\n", fault);
  }
  size_t count() const { return count_; }
  std::string Text() const {
    return count_ > kShown ? lines_ + fmt::format("  … and {} more\n", count_ - kShown) : lines_;
  }

 private:
  static constexpr size_t kShown = 40;
  size_t count_ = 0;
  std::string lines_;
};

}  // namespace octavo::weights
