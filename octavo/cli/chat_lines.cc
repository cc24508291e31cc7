#include "octavo/cli/chat_lines.h"

#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string_view>

#include "octavo/base/error.h"
#include "octavo/cli/generation.h"

namespace octavo {

namespace {

constexpr std::string_view kPasteBegins = "\x1b[200~", kPasteEnds = "\x1b[201~";
constexpr size_t kLongestTyped = 4095;  // a terminal drops what a line has beyond that (N_TTY_BUF_SIZE)

// For the signal handler; one ChatLines at a time has a terminal.
volatile std::sig_atomic_t changed_terminal = -1;
termios terminal_before = {};

void Tell(int descriptor, std::string_view text) {
  if (write(descriptor, text.data(), text.size()) < 0) return;  // a terminal that is gone needs nothing
}

// Removes every `mark`; whether there was one.
bool Take(std::string& line, std::string_view mark) {
  bool found = false;
  for (size_t at = line.find(mark); at != std::string::npos; at = line.find(mark, at)) {
    line.erase(at, mark.size());
    found = true;
  }
  return found;
}

// Arrow keys and the like: they are keys, not text.
void DropKeys(std::string& line) {
  for (size_t at = line.find('\x1b'); at != std::string::npos; at = line.find('\x1b', at)) {
    size_t end = at + 1;
    if (end < line.size() && (line[end] == '[' || line[end] == 'O')) {
      ++end;
      while (end < line.size() && line[end] >= 0x20 && line[end] < 0x40) ++end;
      if (end < line.size()) ++end;
    }
    line.erase(at, end - at);
  }
}

}  // namespace

void RestoreTerminal() {
  if (changed_terminal < 0) return;
  Tell(changed_terminal, "\x1b[?2004l");
  tcsetattr(changed_terminal, TCSADRAIN, &terminal_before);
  changed_terminal = -1;
}

ChatLines::ChatLines(int descriptor, bool terminal) : descriptor_(descriptor), terminal_(terminal) {
  const char* kind = std::getenv("TERM");
  const bool dumb = kind == nullptr || std::string_view(kind) == "dumb";
  if (!terminal || dumb || tcgetattr(descriptor, &terminal_before) != 0) return;
  // The marks come back as the echo of input: sent as they are a terminal ignores them, as ^[[200~ they would be seen.
  termios quiet = terminal_before;
  quiet.c_lflag &= ~static_cast<tcflag_t>(ECHOCTL);
  tcsetattr(descriptor, TCSADRAIN, &quiet);
  changed_terminal = descriptor;
  Tell(descriptor, "\x1b[?2004h");
}

ChatLines::~ChatLines() {
  if (terminal_) RestoreTerminal();
}

ChatLines::What ChatLines::Next(std::string& line) {
  const What what = NextRaw(line);
  if (!terminal_ || what != What::kLine) return what;
  bool cut = line.size() >= kLongestTyped, pasting = Take(line, kPasteBegins);
  if (pasting) pasting = !Take(line, kPasteEnds);
  while (pasting) {
    std::string next;
    if (const What then = NextRaw(next); then != What::kLine) return then;
    cut = cut || next.size() >= kLongestTyped;
    pasting = !Take(next, kPasteEnds);
    line += '\n' + next;
  }
  if (cut) {
    throw Error(ErrorCode::kUsage, fmt::format("the terminal cuts lines at {} bytes; nothing was sent", kLongestTyped),
                "break the line, or send it through a pipe: octavo chat MODEL < FILE");
  }
  DropKeys(line);
  return what;
}

ChatLines::What ChatLines::NextRaw(std::string& line) {
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
