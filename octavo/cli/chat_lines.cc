#include "octavo/cli/chat_lines.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>

#include "octavo/cli/generation.h"

namespace octavo {

ChatLines::What ChatLines::Next(std::string& line) {
  constexpr int kTurnMilliseconds = 100;
  while (true) {
    if (InterruptGuard::Interrupted()) {
      read_.clear();
      searched_ = 0;
      return What::kInterrupt;
    }
    const size_t end = read_.find('\n', searched_);
    if (end != std::string::npos || ended_) {
      if (ended_ && read_.empty()) return What::kEnd;
      line = read_.substr(0, end);
      read_.erase(0, end == std::string::npos ? end : end + 1);
      searched_ = 0;
      if (line.ends_with('\r')) line.pop_back();
      return What::kLine;
    }
    searched_ = read_.size();
    pollfd waited = {descriptor_, POLLIN, 0};
    if (poll(&waited, 1, kTurnMilliseconds) <= 0) continue;
    char bytes[1 << 14];
    const ssize_t count = read(descriptor_, bytes, sizeof bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      ended_ = true;
    } else {
      read_.append(bytes, static_cast<size_t>(count));
    }
  }
}

}  // namespace octavo
