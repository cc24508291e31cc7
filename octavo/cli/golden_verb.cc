// octavo golden DIR: runs reference data through the library.
#include <unistd.h>

#include <cstdio>

#include "octavo/base/log.h"
#include "octavo/base/thread_pool.h"
#include "octavo/cli/golden.h"
#include "octavo/cli/verbs.h"

namespace octavo {
namespace {

int Run(const Args& args) {
  ThreadPool pool(args.Threads());
  Log log(STDERR_FILENO, ChooseLogOptions(STDERR_FILENO));
  GoldenOptions options;
  options.folder = args.positionals()[0];
  options.verbose = args.Switch("verbose");
  return RunGolden(options, pool, log, [](std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); });
}

}  // namespace

VerbSpec GoldenVerb() {
  VerbSpec verb;
  verb.name = "golden";
  verb.synopsis = "DIR [--verbose]";
  verb.summary = "run every case of a folder of reference data and compare";
  verb.details =
      "DIR holds <group>.json (the cases) and <group>.safetensors (their tensors), recorded from the reference "
      "libraries.\n"
      "Prints one line per group and, last, \"N passed, M failed\". A kind of case that is not known counts as "
      "failed.\n"
      "Exit code: 0 all passed, 1 some failed, 5 a file is malformed.";
  verb.least_positionals = verb.most_positionals = 1;
  verb.options = {{"verbose", "", "say what failed in every case, not only in the first few"}};
  verb.run = Run;
  return verb;
}

}  // namespace octavo
