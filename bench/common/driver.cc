#include "bench/common/driver.h"

#include <cstdio>

#include "octavo/base/error.h"

namespace octavo::bench {

int RunDriver(const VerbSpec& spec, int argc, char** argv, const std::function<int(const Args&)>& run) {
  try {
    const std::vector<std::string_view> words(argv + 1, argv + argc);
    const Args args = Args::Parse(spec, words);
    if (args.Switch("help")) {
      std::fputs(HelpPage(spec).c_str(), stdout);
      return 0;
    }
    return run(args);
  } catch (const Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return error.exit_code();
  }
}

}  // namespace octavo::bench
