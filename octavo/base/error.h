// Errors that a user or a caller can act on. Thrown where they are found, caught at four doors: main, one HTTP request,
// one engine step, one rank. Not for bugs inside the product: those are OCTAVO_CHECK (check.h).
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace octavo {

// The value is the exit code of the process when the error reaches main.
enum class ErrorCode {
  kJob = 1,      // the work failed: disk full, port taken, internal check
  kUsage = 2,    // wrong argument, key, rule, shape or value given by the caller
  kCheck = 3,    // a check that was asked for did not hold
  kNumbers = 4,  // NaN or Inf where numbers were expected
  kFile = 5,     // a file is unreadable, malformed or damaged
};

// Two or three short lines: what and where; expected and found; the likely fix.
// `message` is the first line without a final period, `hint` the rest (may be empty).
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, std::string message, std::string hint = "")
      : std::runtime_error(hint.empty() ? message : message + "\n" + hint),
        code_(code),
        message_(std::move(message)),
        hint_(std::move(hint)) {}

  ErrorCode code() const { return code_; }
  int exit_code() const { return static_cast<int>(code_); }
  const std::string& message() const { return message_; }
  const std::string& hint() const { return hint_; }

 private:
  ErrorCode code_;
  std::string message_;
  std::string hint_;
};

template <typename... Args>
[[noreturn]] void ThrowUsage(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorCode::kUsage, fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
[[noreturn]] void ThrowFile(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorCode::kFile, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace octavo
