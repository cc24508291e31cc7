// Bounds recursion while a template is read and run: a counter per kind of nesting, and the machine's stack itself, so
// that no mix of constructs can overflow it. Used by the parser, the scope pass and the interpreter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "octavo/text/template_error.h"
#include "octavo/text/template_lexer.h"

namespace octavo::text::jinja {

inline constexpr int kMaxNesting = 64;           // blocks in blocks, parentheses in parentheses
inline constexpr int kMaxExpressionDepth = 400;  // operators in a row nest to the left

// Counts one level for its lifetime.
class Nesting {
 public:
  Nesting(int* depth, int line, std::string_view source, size_t position) : depth_(depth) {
    if (++*depth_ > kMaxNesting) {
      --*depth_;
      throw TemplateError(ErrorCode::kFile, "LimitError",
                          "nested deeper than " + std::to_string(kMaxNesting) + " levels", line, "",
                          Excerpt(source, position));
    }
  }
  ~Nesting() { --*depth_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

 private:
  int* depth_;
};

// How far the stack has grown since this object was made.
class StackMeter {
 public:
  StackMeter() : base_(Here()) {}
  size_t Used() const {
    const uintptr_t here = Here();
    return base_ > here ? base_ - here : here - base_;
  }

 private:
  static uintptr_t Here() { return reinterpret_cast<uintptr_t>(__builtin_frame_address(0)); }
  uintptr_t base_;
};

// A quarter of the usual stack of a thread.
inline constexpr size_t kMaxStackBytes = size_t{2} << 20;

}  // namespace octavo::text::jinja
