// A text's tokens cut into windows: what a model sees and what it should say. Used by evaluation. Knows no tokenizer.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace octavo::eval {

struct WindowOptions {
  int64_t length = 0;               // tokens that the model sees: its context
  std::optional<int32_t> bos = {};  // begins every window; the first token of the text is then a target too
  int64_t most = 0;                 // windows; 0: all
};

struct Window {
  std::vector<int32_t> tokens;   // that the model sees, `length` of them
  std::vector<int32_t> targets;  // what follows each
};

// Whole windows that follow each other: every token is a target once, except the first of the text without a bos and
// those at the end that do not fill a window. A text too short for one window is a usage error.
class Windows {
 public:
  Windows(std::span<const int32_t> tokens, const WindowOptions& options);

  std::span<const int32_t> tokens() const { return tokens_; }  // of the whole text
  int64_t count() const { return count_; }
  int64_t targets() const { return count_ * options_.length; }
  int64_t left_over() const;  // tokens at the end that are no targets
  Window At(int64_t index) const;

 private:
  std::span<const int32_t> tokens_;
  WindowOptions options_;
  int64_t count_ = 0;
};

}  // namespace octavo::eval
