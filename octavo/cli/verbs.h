// The table of verbs and the door to them. One line per verb in verbs.cc; the verb itself is a file <name>_verb.cc.
#pragma once

#include <span>
#include <string_view>

#include "octavo/cli/args.h"

namespace octavo {

// Runs `octavo WORDS…` and returns its exit code. Throws Error for what the user should read.
int RunCommand(std::span<const std::string_view> words);

// Every verb, in the order of the help page.
std::span<const VerbSpec> Verbs();

VerbSpec BenchVerb();
VerbSpec ChatVerb();
VerbSpec CompareVerb();
VerbSpec CompletionVerb();
VerbSpec ConfigVerb();
VerbSpec ConvertVerb();
VerbSpec CpVerb();
VerbSpec DashboardVerb();
VerbSpec DiffVerb();
VerbSpec DoctorVerb();
VerbSpec EvalVerb();
VerbSpec GenerateVerb();
VerbSpec GoldenVerb();
VerbSpec InspectVerb();
VerbSpec LsVerb();
VerbSpec PlanVerb();
VerbSpec ReportVerb();
VerbSpec ServeVerb();
VerbSpec TokenizeVerb();
VerbSpec TokenizerVerb();
VerbSpec TrainVerb();
VerbSpec VerifyVerb();

}  // namespace octavo
