#include "octavo/eval/windows.h"

#include <algorithm>

#include "octavo/base/error.h"

namespace octavo::eval {

Windows::Windows(std::span<const int32_t> tokens, const WindowOptions& options) : tokens_(tokens), options_(options) {
  if (options.length < 1) ThrowUsage("a window of {} tokens", options.length);
  const auto all = static_cast<int64_t>(tokens.size());
  const int64_t targets = options.bos ? all : all - 1;
  count_ = std::max<int64_t>(0, targets) / options.length;
  if (count_ == 0) {
    throw Error(ErrorCode::kUsage, fmt::format("data has {} tokens, one window needs {}", all, options.length),
                fmt::format("give more text, or a shorter window: max_target_length={}",
                            std::max<int64_t>(1, std::min(targets, options.length) / 2)));
  }
  if (options.most > 0) count_ = std::min(count_, options.most);
}

int64_t Windows::left_over() const {
  return static_cast<int64_t>(tokens_.size()) - (options_.bos ? 0 : 1) - count_ * options_.length;
}

Window Windows::At(int64_t index) const {
  const auto length = static_cast<size_t>(options_.length);
  const size_t begin = static_cast<size_t>(index) * length;
  Window window;
  if (options_.bos) {
    window.tokens = {*options_.bos};
    const auto first = tokens_.begin() + static_cast<std::ptrdiff_t>(begin);
    window.tokens.insert(window.tokens.end(), first, first + static_cast<std::ptrdiff_t>(length - 1));
    window.targets.assign(first, first + static_cast<std::ptrdiff_t>(length));
  } else {
    const std::span<const int32_t> seen = tokens_.subspan(begin, length), next = tokens_.subspan(begin + 1, length);
    window.tokens.assign(seen.begin(), seen.end());
    window.targets.assign(next.begin(), next.end());
  }
  return window;
}

}  // namespace octavo::eval
