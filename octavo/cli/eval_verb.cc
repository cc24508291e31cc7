// octavo eval: loss and perplexity of a model over a text.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "octavo/base/error.h"
#include "octavo/base/progress.h"
#include "octavo/cli/evaluated_model.h"
#include "octavo/cli/verbs.h"
#include "octavo/eval/text_loss.h"

namespace octavo {
namespace {

int Run(const Args& args) {
  if (!args.Has("data")) {
    throw Error(ErrorCode::kUsage, "octavo eval needs a text", "data=FILE");
  }
  const std::optional<double> target = NumberOption(args, "target");
  ThreadPool pool(args.Threads());
  const EvaluatedModel model = LoadEvaluated(args.positionals()[0], args.Switch("float"), args, pool);
  const EvaluatedText text = ReadEvaluatedText(model, TokenizerOf(model), false, args);
  const eval::Windows windows(text.tokens, text.windows);
  const bool quiet = args.Switch("quiet");
  if (!quiet && windows.left_over() > 0 && text.windows.most == 0) {
    fmt::print(stderr, "note      the last {} tokens do not fill a window of {}\n", windows.left_over(),
               text.windows.length);
  }
  const auto start = std::chrono::steady_clock::now();
  eval::TextLoss found;
  {
    Log log(STDERR_FILENO, ChooseLogOptions(STDERR_FILENO, ColorChoice::kAuto, quiet));
    Progress progress(log, "eval", windows.targets(), "tokens");
    found = eval::EvaluateText(model.subject, windows, pool,
                               [&](int64_t, const eval::Mean& loss) { progress.Update(loss.count()); });
  }
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
  const double speed = static_cast<double>(found.loss.count()) / passed.count();
  if (args.Switch("json")) {
    fmt::print("{}\n", nlohmann::ordered_json({{"event", "eval"},
                                               {"loss", found.loss.mean()},
                                               {"loss_error", found.loss.standard_error()},
                                               {"perplexity", found.perplexity()},
                                               {"perplexity_error", found.perplexity_error()},
                                               {"tokens", found.loss.count()},
                                               {"windows", found.windows},
                                               {"window", text.windows.length},
                                               {"fingerprint", model.loaded.fingerprint},
                                               {"tokens_per_second", speed}})
                           .dump());
  } else {
    fmt::print("loss {:.4f} ± {:.4f}   perplexity {:.2f} ± {:.2f}   tokens {}\n", found.loss.mean(),
               found.loss.standard_error(), found.perplexity(), found.perplexity_error(), found.loss.count());
  }
  std::fflush(stdout);
  if (!quiet) {
    fmt::print(stderr, "speed     {:.0f} tok/s   windows of {} tokens{}\n", speed, text.windows.length,
               text.windows.bos ? ", each begun with the text's first token" : "");
  }
  if (target && found.loss.mean() > *target) {
    throw Error(ErrorCode::kCheck, fmt::format("loss {:.4f} is over target={}", found.loss.mean(), *target));
  }
  return 0;
}

}  // namespace

VerbSpec EvalVerb() {
  return {.name = "eval",
          .synopsis = "MODEL data=FILE [target=LOSS] [max_target_length=N]",
          .summary = "loss and perplexity of a model over a text, with standard errors",
          .details =
              "The text is cut into windows of max_target_length tokens that follow each other; each begins with the\n"
              "token that the tokenizer puts before a text, and every token is predicted once. Loss is in nats per\n"
              "token; the standard error takes tokens as independent. The model runs under its own recipe, with the\n"
              "bits of training and serving; --float runs it in floats. With target=LOSS the exit code is 3 when the\n"
              "loss is above. The same numbers for any number of threads.\n"
              "  octavo eval out/x-int8 data=wikitext2.test.raw\n"
              "  octavo eval Qwen3-0.6B data=notes.txt max_target_length=1024 --json",
          .least_positionals = 1,
          .most_positionals = 1,
          .options = EvaluationOptions(
              {{"target", "LOSS", "exit 3 when the loss is above"}, {"float", "", "without the model's recipe"}}),
          .run = Run};
}

}  // namespace octavo
