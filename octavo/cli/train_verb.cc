// octavo train: settings in, a run folder out.
#include <unistd.h>

#include "octavo/base/error.h"
#include "octavo/cli/verbs.h"
#include "octavo/config/settings.h"
#include "octavo/dist/communicator.h"
#include "octavo/kernels/isa.h"
#include "octavo/train/signals.h"
#include "octavo/train/trainer.h"

namespace octavo {
namespace {

ColorChoice ColorOf(const Args& args) {
  const std::string color = args.Text("color", "auto");
  if (color == "always") return ColorChoice::kAlways;
  if (color == "never") return ColorChoice::kNever;
  if (color != "auto") ThrowUsage("color='{}': expected auto, always or never", color);
  return ColorChoice::kAuto;
}

bool HasVerb(std::string_view name) {
  for (const VerbSpec& verb : Verbs()) {
    if (verb.name == name) return true;
  }
  return false;
}

// What most people want next: the model as it was trained, or a float one in int8. A run that saved nothing can only be
// looked at.
std::string NextCommand(const Settings& settings, const std::filesystem::path& run,
                        const std::filesystem::path& checkpoint) {
  if (!HasVerb("convert") || checkpoint.empty()) return fmt::format("octavo report {}", run.string());
  const std::string name = settings.Text("quantization"), file = settings.Text("recipe");
  if (name.empty() && file.empty()) {
    return fmt::format("octavo convert {} {}-int8 quantization=int8", checkpoint.string(), run.string());
  }
  return fmt::format("octavo convert {} {}-{}", checkpoint.string(), run.string(),
                     name.empty() ? std::filesystem::path(file).stem().string() : name);
}

int RunTrain(const Args& args) {
  Log log(STDERR_FILENO, ChooseLogOptions(STDERR_FILENO, ColorOf(args), args.Switch("quiet")));
  std::vector<std::string> words = args.positionals();
  words.insert(words.end(), args.settings().begin(), args.settings().end());
  const Settings settings = Settings::Load({.words = words, .environment = ProcessEnvironment()});
  ThreadPool pool(args.Threads());
  SelfCommunicator self;
  const train::SignalGuard signals(args.Switch("quiet") ? -1 : STDERR_FILENO);
  const train::TrainSummary summary =
      train::Train({.settings = settings,
                    .log = log,
                    .pool = pool,
                    .communicator = self,
                    .isa = kernels::ChooseIsa().isa,
                    .signal = [&] { return signals.received(); },
                    .json = args.Switch("json") ? stdout : nullptr,
                    .next_command = [&](const auto& run,
                                        const auto& checkpoint) { return NextCommand(settings, run, checkpoint); }});
  return summary.exit_code;
}

}  // namespace

VerbSpec TrainVerb() {
  return {
      .name = "train",
      .synopsis = "[FILE.yml] key=value…",
      .summary = "train a model; MaxText's keys and config files work as they are",
      .details =
          "Keys are those of base.yml (octavo config explain KEY). The run goes to base_output_directory/run_name:\n"
          "config.yml, plan.txt, metrics.jsonl, tensorboard/, checkpoints/. The same command, or its config.yml,\n"
          "resumes it. Ctrl-C finishes the step, saves and says how to go on; a second one ends at once.\n"
          "  octavo train run_name=x dataset_type=synthetic steps=20 per_device_batch_size=1 max_target_length=128 \\\n"
          "    model_name=gpt3-52k use_qwix_quantization=true quantization=int8\n"
          "  octavo train out/x/config.yml\n"
          "Exit 4: a loss or gradient became NaN or infinite; the report names the first bad tensor.",
      .most_positionals = 1,
      .run = RunTrain,
      .takes_settings = true};
}

}  // namespace octavo
