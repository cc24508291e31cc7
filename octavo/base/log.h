// Messages to the person who runs the program, on stderr: plain text when stderr is no terminal, colour and a status
// line at the bottom when it is. main makes one Log and passes it down; it is not for results, which go to stdout.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

namespace octavo {

// kAlways: what must be read whatever the level, and is no error: why a run stopped. It has no word before it.
enum class LogLevel : uint8_t { kAlways, kError, kWarning, kInfo, kDebug };

struct LogOptions {
  LogLevel level = LogLevel::kInfo;  // more detailed messages than this are dropped
  bool color = false;
  bool status_line = false;  // redraw a line at the bottom; only for terminals
};

enum class ColorChoice : uint8_t { kAuto, kAlways, kNever };

// What suits a file descriptor: colour if it is a terminal, NO_COLOR is not set and TERM is not "dumb"; `color`
// overrides both ways. `quiet` leaves warnings and errors and no status line.
LogOptions ChooseLogOptions(int fd, ColorChoice color = ColorChoice::kAuto, bool quiet = false);

class Log {
 public:
  using Sink = std::function<void(std::string_view)>;

  // Writes to a file descriptor, which stays open. A closed pipe or a full disk is ignored: a message must not end a
  // job.
  explicit Log(int fd, LogOptions options = {});
  // Writes to a function; for tests and for programs that embed the library.
  explicit Log(Sink sink, LogOptions options = {});
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  const LogOptions& options() const { return options_; }
  bool Shows(LogLevel level) const { return level <= options_.level; }

  // One message, one or more lines, from any thread. Control characters (a terminal would obey them) become '?'.
  void Write(LogLevel level, std::string_view text);

  template <typename... Args>
  void Always(fmt::format_string<Args...> format, Args&&... args) {
    Format(LogLevel::kAlways, format, std::forward<Args>(args)...);
  }
  template <typename... Args>
  void Error(fmt::format_string<Args...> format, Args&&... args) {
    Format(LogLevel::kError, format, std::forward<Args>(args)...);
  }
  template <typename... Args>
  void Warning(fmt::format_string<Args...> format, Args&&... args) {
    Format(LogLevel::kWarning, format, std::forward<Args>(args)...);
  }
  template <typename... Args>
  void Info(fmt::format_string<Args...> format, Args&&... args) {
    Format(LogLevel::kInfo, format, std::forward<Args>(args)...);
  }
  template <typename... Args>
  void Debug(fmt::format_string<Args...> format, Args&&... args) {
    Format(LogLevel::kDebug, format, std::forward<Args>(args)...);
  }

  // Replaces the line at the bottom of the terminal; "" takes it away. Messages scroll above it. Does nothing when
  // there is no status line.
  void Status(std::string_view text);

 private:
  template <typename... Args>
  void Format(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
    if (Shows(level)) Write(level, fmt::format(format, std::forward<Args>(args)...));
  }

  LogOptions options_;
  Sink sink_;
  std::mutex mutex_;
  std::string status_;
};

}  // namespace octavo
