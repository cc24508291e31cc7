#include "octavo/base/log.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace octavo {
namespace {

constexpr std::string_view kEraseLine = "\r\x1b[K";
constexpr std::string_view kPlain = "\x1b[0m";

struct Look {
  std::string_view prefix, color;
};

Look LookOf(LogLevel level) {
  switch (level) {
    case LogLevel::kError:
      return {"error: ", "\x1b[1;31m"};
    case LogLevel::kWarning:
      return {"warning: ", "\x1b[1;33m"};
    case LogLevel::kAlways:
    case LogLevel::kInfo:
      return {"", ""};
    case LogLevel::kDebug:
      break;
  }
  return {"debug: ", "\x1b[2m"};
}

// Text from files and requests must not move the cursor or set colours. Bytes above 127 are UTF-8 and stay.
std::string Harmless(std::string_view text, bool keep_lines) {
  std::string clean(text);
  for (char& c : clean) {
    const unsigned char byte = static_cast<unsigned char>(c);
    if (byte == '\t' || (keep_lines && byte == '\n')) continue;
    if (byte < 0x20 || byte == 0x7f) c = '?';
  }
  return clean;
}

bool IsSet(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

void WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(fd, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    text.remove_prefix(static_cast<size_t>(count));
  }
}

}  // namespace

LogOptions ChooseLogOptions(int fd, ColorChoice color, bool quiet) {
  const char* term = std::getenv("TERM");
  const bool terminal = ::isatty(fd) == 1 && !(term != nullptr && std::string_view(term) == "dumb");
  LogOptions options;
  options.level = quiet ? LogLevel::kWarning : LogLevel::kInfo;
  options.color = color == ColorChoice::kAlways || (color == ColorChoice::kAuto && terminal && !IsSet("NO_COLOR"));
  options.status_line = terminal && !quiet;
  return options;
}

Log::Log(int fd, LogOptions options) : Log([fd](std::string_view text) { WriteAll(fd, text); }, options) {}

Log::Log(Sink sink, LogOptions options) : options_(options), sink_(std::move(sink)) {}

void Log::Write(LogLevel level, std::string_view text) {
  if (!Shows(level)) return;
  const Look look = LookOf(level);
  const bool color = options_.color && !look.color.empty();
  std::string line;
  if (color) line += look.color;
  line += look.prefix;
  // An error's first word is coloured; a debug line is dim as a whole.
  if (color && level != LogLevel::kDebug) line += kPlain;
  line += Harmless(text, true);
  if (color && level == LogLevel::kDebug) line += kPlain;
  if (line.empty() || line.back() != '\n') line += '\n';

  // One write for all, so that lines of several processes on one terminal do not mix.
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!status_.empty()) line = std::string(kEraseLine) + line + status_;
  sink_(line);
}

void Log::Status(std::string_view text) {
  if (!options_.status_line) return;
  const std::string clean = Harmless(text, false);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (clean == status_) return;
  status_ = clean;
  sink_(std::string(kEraseLine) + status_);
}

}  // namespace octavo
