// What `octavo generate` and `octavo chat` share: a model from the words of the command line, sampling from options and
// MaxText's keys, and one request whose text is shown as it comes.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/cli/args.h"
#include "octavo/config/settings.h"
#include "octavo/engine/collector.h"
#include "octavo/engine/serving_model.h"

namespace octavo {

// The options of both verbs.
std::vector<OptionSpec> GenerationOptions();

// The words as settings, and which of them is the model: a positional, or load_parameters_path=.
struct GenerationWords {
  Settings settings;
  std::string model;
  bool positional = false;
};
GenerationWords ReadGenerationWords(const Args& args);

// The name under which adapter=FOLDER is loaded.
inline constexpr const char* kAdapter = "adapter";

// Opens the model for `slots` samples at a time; prints what it is to stderr.
std::unique_ptr<engine::ServingModel> OpenForGeneration(const Args& args, const GenerationWords& words, int64_t slots);

// generation_config.json of the model, or `otherwise` when it has none; over it MaxText's decode_sampling_* keys if any
// was asked for; over these the options temperature, top_k, top_p, min_p, repetition_penalty, seed. Who names top_k,
// top_p or min_p wants draws: where nobody chose a temperature and `otherwise` is greedy, it is 1 then.
engine::Sampling SamplingFrom(const Args& args, const Settings& settings, const engine::GenerationDefaults& defaults,
                              const engine::Sampling& otherwise);

// What of top_k, top_p and min_p was given and does nothing, because the temperature is 0; empty: nothing.
std::string IdleSamplingNote(const Args& args, const engine::Sampling& sampling);

// How many tokens to ask for: max_tokens, or what max_target_length leaves, or the model's own wish, or 256; never more
// than the context has room for unless the user named the number.
int64_t MaxNewTokens(const Args& args, const Settings& settings, const engine::ServingModel& model, int64_t prompt);

// Interrupts while a model writes. The first Ctrl-C is a request to stop; at the second within one answer the process
// ends, after `before_exit`, which runs in a signal handler.
class InterruptGuard {
 public:
  explicit InterruptGuard(void (*before_exit)() = nullptr);
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  static bool Interrupted();
  static void Clear();
};

// Runs one request; `show` gets every event on this thread. Ctrl-C cancels it.
engine::Answers Generate(engine::Service& service, const engine::Request& request,
                         const std::function<void(const engine::Event&)>& show);

// A sample that ended in an error as that error, named by its number where there are several: exit code 4 for numbers
// that broke, else 1.
void ThrowIfFailed(const engine::Answers& answers);

// How a request with several samples ended: with an error, an interrupt or for its length if any of them did.
engine::Finish FinishOf(const engine::Answers& answers);

// {"event":"text","sample":0,"text":"…","tokens":[…]} for an event that has text, and the end of a line.
std::string TextEventLine(const engine::Event& event);

// What a model wrote, as a terminal may show it: control characters but line ends and tabs become U+FFFD, so that no
// text moves the cursor or speaks to the terminal. `text` holds whole characters.
std::string ForTerminal(std::string_view text);
// To stdout at once; ForTerminal if that is one.
void PrintModelText(std::string_view text);

// To stdout at once. JsonLine: on one line, what is no UTF-8 replaced.
void Print(std::string_view text);
std::string JsonLine(const nlohmann::ordered_json& json);

// "prompt 12 tokens, 3 cached, 0.05 s, 240 tok/s   generated 64 tokens, 0.61 s, 105 tok/s   length".
std::string SpeedLine(const engine::Usage& usage, engine::Finish finish);
std::string_view NameOf(engine::Finish finish);  // "stop", "length", "cancelled", "error"

}  // namespace octavo
