// Lines of a conversation, from a terminal or a pipe, for octavo chat. Waits in short turns, so that a Ctrl-C that any
// thread of the process received is seen.
#pragma once

#include <string>

namespace octavo {

class ChatLines {
 public:
  enum class What { kLine, kInterrupt, kEnd };

  explicit ChatLines(int descriptor) : descriptor_(descriptor) {}

  // The next line without its end; the last one may have none. kInterrupt leaves the flag of InterruptGuard set and
  // drops what was read of lines that were not asked for yet.
  What Next(std::string& line);

 private:
  const int descriptor_;
  std::string read_;     // not given out yet
  size_t searched_ = 0;  // so far there is no end of a line in it
  bool ended_ = false;
};

}  // namespace octavo
