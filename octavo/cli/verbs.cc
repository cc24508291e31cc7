#include "octavo/cli/verbs.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <string>

#include "octavo/base/error.h"
#include "octavo/base/nearest.h"
#include "octavo/version.h"

namespace octavo {
namespace {

std::string MainHelp() {
  std::string page =
      "octavo VERB [key=value | --key=value | PATH]…\n"
      "  Train, convert and serve language models in 8 bits and fewer, on CPUs, with one set of bits.\n\nVerbs:\n";
  for (const VerbSpec& verb : Verbs()) page += fmt::format("  {:<12} {}\n", verb.name, verb.summary);
  page += "\noctavo VERB --help says more; octavo --version prints the version.\n";
  return page;
}

// Trainers that MaxText has beside `train`.
constexpr std::string_view kNotYet[] = {"sft", "dpo", "rl", "distill"};

[[noreturn]] void ThrowUnknownVerb(std::string_view name) {
  if (std::find(std::begin(kNotYet), std::end(kNotYet), name) != std::end(kNotYet)) {
    throw Error(ErrorCode::kUsage, fmt::format("octavo {} is not there yet", name),
                "octavo train load_parameters_path=… trains on from a model");
  }
  std::vector<std::string_view> known;
  for (const VerbSpec& verb : Verbs()) known.push_back(verb.name);
  throw Error(ErrorCode::kUsage, fmt::format("unknown verb '{}'", name),
              fmt::format("nearest: {}. octavo --help lists all", fmt::join(NearestNames(name, known, 3), ", ")));
}

}  // namespace

std::span<const VerbSpec> Verbs() {
  static const std::vector<VerbSpec> verbs = {
      // clang-format off
      TrainVerb(),
      ConvertVerb(),
      ReportVerb(),
      DashboardVerb(),
      PlanVerb(),
      GenerateVerb(),
      ChatVerb(),
      ServeVerb(),
      VerifyVerb(),
      BenchVerb(),
      EvalVerb(),
      CompareVerb(),
      DiffVerb(),
      InspectVerb(),
      TokenizeVerb(),
      TokenizerVerb(),
      LsVerb(),
      CpVerb(),
      ConfigVerb(),
      DoctorVerb(),
      GoldenVerb(),
      CompletionVerb(),
      // clang-format on
  };
  return verbs;
}

int RunCommand(std::span<const std::string_view> words) {
  if (words.empty()) {
    fmt::print(stderr, "{}", MainHelp());
    return static_cast<int>(ErrorCode::kUsage);
  }
  const std::string_view name = words[0];
  if (name == "--help" || name == "-h" || name == "help") {
    fmt::print("{}", MainHelp());
    return 0;
  }
  if (name == "--version" || name == "version") {
    fmt::print("octavo {} ({})\n", OCTAVO_VERSION, OCTAVO_COMMIT);
    return 0;
  }
  for (const VerbSpec& verb : Verbs()) {
    if (verb.name != name) continue;
    const Args args = Args::Parse(verb, words.subspan(1));
    if (args.Switch("help")) {
      fmt::print("{}", HelpPage(verb));
      return 0;
    }
    return verb.run(args);
  }
  ThrowUnknownVerb(name);
}

}  // namespace octavo
