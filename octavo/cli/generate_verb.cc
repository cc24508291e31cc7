// octavo generate: a prompt in, text out.
#include <unistd.h>

#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "octavo/base/error.h"
#include "octavo/base/mapped_file.h"
#include "octavo/cli/generation.h"
#include "octavo/cli/verbs.h"

namespace octavo {
namespace {

using engine::Answer;
using engine::Answers;
using engine::Finish;

constexpr const char* kPromptHint = "prompt='…', prompt=@FILE or text on stdin";

// prompt='…', prompt=@FILE, or standard input; MaxText's key and its default when the model came its way.
std::string PromptText(const Args& args, const GenerationWords& words) {
  std::string text;
  if (args.Has("prompt") || words.settings.IsAskedFor("prompt") || !words.positional) {
    text = args.Text("prompt", words.settings.Text("prompt"));
    if (text.size() > 1 && text[0] == '@') {
      const MappedFile file(text.substr(1));
      text.assign(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
    }
  } else if (isatty(STDIN_FILENO) == 0) {
    text.assign(std::istreambuf_iterator<char>(std::cin), {});
    if (text.ends_with('\n')) text.pop_back();  // echo's and the editor's, not the writer's
  }
  if (text.empty()) {
    throw Error(ErrorCode::kUsage, "prompt is empty", kPromptHint);
  }
  return text;
}

nlohmann::ordered_json Logprobs(const std::vector<engine::TokenLogprob>& values) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const engine::TokenLogprob& value : values) list.push_back(value.logprob);
  return list;
}

void PrintJsonEnd(const Answers& answers, const engine::ServingModel& model) {
  for (size_t i = 0; i < answers.samples.size(); ++i) {
    const Answer& answer = answers.samples[i];
    nlohmann::ordered_json line = {{"event", "sample"},
                                   {"sample", i},
                                   {"text", answer.text},
                                   {"tokens", answer.tokens},
                                   {"finish_reason", NameOf(answer.finish)}};
    if (!answer.logprobs.empty()) line["logprobs"] = Logprobs(answer.logprobs);
    if (!answer.error.empty()) line["error"] = answer.error;
    Print(JsonLine(line));
  }
  const engine::Usage& usage = answers.usage;
  Print(JsonLine({{"event", "done"},
                  {"model", model.info().id},
                  {"fingerprint", model.info().fingerprint},
                  {"prompt_tokens", usage.prompt_tokens},
                  {"completion_tokens", usage.completion_tokens},
                  {"prefill_seconds", usage.prefill_seconds},
                  {"decode_seconds", usage.decode_seconds}}));
}

engine::Request MakeRequest(const Args& args, const GenerationWords& words, const engine::ServingModel& model,
                            std::vector<int32_t> prompt) {
  engine::Request request;
  request.prompt = std::move(prompt);
  engine::Sampling greedy;
  greedy.temperature = 0;
  request.sampling = SamplingFrom(args, words.settings, model.defaults(), greedy);
  request.max_new_tokens = MaxNewTokens(args, words.settings, model, std::ssize(request.prompt));
  request.samples = static_cast<int>(args.Int("n", 1, 1, 8));
  if (args.Has("stop")) request.stop = {args.Text("stop", "")};
  request.ignore_eos = args.Switch("ignore_eos");
  if (words.settings.Bool("return_log_prob")) request.top_logprobs = 0;
  if (!model.adapters().Names().empty()) request.adapter = model.adapters().Names()[0];
  return request;
}

// What would otherwise do nothing without a word.
void PrintNotes(const Args& args, const GenerationWords& words, const engine::Request& request) {
  if (args.Switch("quiet")) return;
  const std::string idle = IdleSamplingNote(args, request.sampling);
  if (!idle.empty()) fmt::print(stderr, "note: {}\n", idle);
  if (request.top_logprobs >= 0 && !args.Switch("json")) {
    fmt::print(stderr, "note: return_log_prob=true ({}) shows with --json only\n",
               words.settings.OriginOf("return_log_prob"));
  }
}

// The texts that were not streamed, each on a line of its own.
void PrintTexts(const Answers& answers, const std::string& prompt, bool positional) {
  for (const Answer& answer : answers.samples) {
    if (answer.text.empty() && answer.finish == Finish::kError) continue;
    PrintModelText(positional ? answer.text + "\n" : fmt::format("Input `{}` -> `{}`\n", prompt, answer.text));
  }
}

int Finished(const Args& args, const GenerationWords& words, const Answers& answers) {
  ThrowIfFailed(answers);
  const Finish finish = FinishOf(answers);
  if (!args.Switch("quiet")) fmt::print(stderr, "{}\n", SpeedLine(answers.usage, finish));
  if (finish == Finish::kCancelled) return 130;
  const std::string expected = words.settings.Text("autoregressive_decode_assert");
  const std::string& found = answers.samples[0].text;
  if (!expected.empty() && found != expected) {
    throw Error(ErrorCode::kCheck, "the text is not that of autoregressive_decode_assert",
                fmt::format("expected '{}'\n  found '{}'", expected, found));
  }
  return 0;
}

int Run(const Args& args) {
  const GenerationWords words = ReadGenerationWords(args);
  const bool unprompted = args.Switch("unprompted");
  if (unprompted && args.Has("prompt")) ThrowUsage("--unprompted and prompt= are given: choose one");
  const std::string text = unprompted ? "" : PromptText(args, words);
  const int64_t samples = args.Int("n", 1, 1, 8);
  const auto model = OpenForGeneration(args, words, samples);
  std::vector<int32_t> prompt = model->EncodePrompt(text);
  if (prompt.empty() && unprompted) ThrowUsage("--unprompted needs a tokenizer with a token that begins a text");
  if (prompt.empty()) {
    throw Error(ErrorCode::kUsage, "prompt is empty",
                fmt::format("{}\nthe tokenizer has no token for any of its {} bytes", kPromptHint, text.size()));
  }
  const engine::Request request = MakeRequest(args, words, *model, std::move(prompt));
  PrintNotes(args, words, request);
  const auto scheduler = model->Start();
  const InterruptGuard guard;
  const bool json = args.Switch("json"), streams = !json && samples == 1 && words.positional;
  const Answers answers = Generate(*scheduler, request, [&](const engine::Event& event) {
    if (streams) PrintModelText(event.text);
    if (json) Print(TextEventLine(event));
  });
  if (json) {
    PrintJsonEnd(answers, *model);
  } else if (streams) {
    const Answer& answer = answers.samples[0];
    const bool nothing = answer.text.empty() && answer.finish == Finish::kError;
    if (!nothing && !answer.text.ends_with('\n')) Print("\n");
  } else {
    PrintTexts(answers, text, words.positional);
  }
  return Finished(args, words, answers);
}

}  // namespace

VerbSpec GenerateVerb() {
  std::vector<OptionSpec> options = {{"prompt", "TEXT|@FILE", "what to continue; without it standard input is read"},
                                     {"unprompted", "", "start from the token that begins a text"},
                                     {"n", "N", "continuations of the one prompt, 1 to 8"},
                                     {"ignore_eos", "", "go on after the token that ends a text"}};
  for (const OptionSpec& option : GenerationOptions()) options.push_back(option);
  return {.name = "generate",
          .synopsis = "MODEL [prompt=TEXT|prompt=@FILE] [key=value…]",
          .summary = "continue a prompt: text on stdout, speed on stderr",
          .details =
              "MODEL is a checkpoint of a run, a converted model, a Hugging Face folder, a GGUF or llama2.c file.\n"
              "quantization=NAME quantizes it on load, with the bits of the converted file. Without sampling options\n"
              "the model's generation_config.json counts, else the most likely token is taken; top_k, top_p or min_p\n"
              "alone mean temperature=1 then. MaxText's keys work:\n"
              "load_parameters_path=MODEL in place of MODEL prints its line Input `…` -> `…`, and\n"
              "decode_sampling_strategy, max_target_length, quantize_kvcache and the others mean the same.\n"
              "  octavo generate out/x-int8 prompt='I love to' max_target_length=64\n"
              "  octavo generate out/x-int8 temperature=0.8 top_p=0.95 seed=1 < prompt.txt\n"
              "Exit 3: the text is not that of autoregressive_decode_assert; 4: the model's numbers broke.",
          .most_positionals = 2,
          .options = std::move(options),
          .run = Run,
          .takes_settings = true};
}

}  // namespace octavo
