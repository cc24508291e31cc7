// Lines of a conversation, from a terminal or a pipe, for octavo chat. Waits in short turns, so that a Ctrl-C that any
// thread of the process received is seen. What is pasted into a terminal is one line with line ends in it.
#pragma once

#include <string>

namespace octavo {

// Gives the terminal back as it was before ChatLines. Safe in a signal handler; does nothing when there is nothing to
// do.
void RestoreTerminal();

class ChatLines {
 public:
  enum class What { kLine, kInterrupt, kEnd };

  // For a terminal: asks it to mark what is pasted (bracketed paste), until the end of this object.
  explicit ChatLines(int descriptor, bool terminal = false);
  ~ChatLines();
  ChatLines(const ChatLines&) = delete;
  ChatLines& operator=(const ChatLines&) = delete;

  // The next line without its end; the last one may have none. kInterrupt leaves the flag of InterruptGuard set and
  // drops what was read of lines that were not asked for yet. A line that the terminal cut is a usage Error.
  What Next(std::string& line);

 private:
  What NextRaw(std::string& line);

  const int descriptor_;
  const bool terminal_;
  std::string read_;     // not given out yet
  size_t searched_ = 0;  // so far there is no end of a line in it
  bool ended_ = false;
};

}  // namespace octavo
