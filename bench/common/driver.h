// The main function of a benchmark: its options, --help, and errors with their exit codes.
#pragma once

#include <functional>

#include "octavo/cli/args.h"

namespace octavo::bench {

int RunDriver(const VerbSpec& spec, int argc, char** argv, const std::function<int(const Args&)>& run);

}  // namespace octavo::bench
