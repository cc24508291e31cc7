// The octavo binary: finds the verb, catches every error, turns it into two or three lines and an exit code.
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <string_view>
#include <vector>

#include <unistd.h>

#include "octavo/base/error.h"
#include "octavo/cli/error_text.h"
#include "octavo/cli/verbs.h"

namespace {

// A reader that went away is no error: `octavo … | head` ends quietly.
void EndQuietly(int) { _exit(0); }

int Report(const octavo::Error& error) {
  fmt::print(stderr, "{}", octavo::ErrorText(error));
  return error.exit_code();
}

octavo::Error OutputError() {
  return {octavo::ErrorCode::kJob, "cannot write the result to standard output", "is the disk full?"};
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, EndQuietly);
  try {
    const std::vector<std::string_view> words(argv + 1, argv + argc);
    const int code = octavo::RunCommand(words);
    // Verbs flush as they go: a write that failed before is kept in the stream's error flag.
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) throw OutputError();
    return code;
  } catch (const octavo::Error& error) {
    return Report(error);
  } catch (const std::bad_alloc&) {
    return Report(octavo::Error(octavo::ErrorCode::kJob, "out of memory"));
  } catch (const std::exception& error) {
    if (std::ferror(stdout) != 0) return Report(OutputError());
    return Report(octavo::Error(octavo::ErrorCode::kJob, error.what()));
  }
}
