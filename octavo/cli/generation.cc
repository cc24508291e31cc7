#include "octavo/cli/generation.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <deque>
#include <mutex>
#include <nlohmann/json.hpp>

#include "octavo/base/error.h"
#include "octavo/engine/validate.h"

namespace octavo {
namespace {

using engine::Sampling;

volatile std::sig_atomic_t interrupts = 0;
void (*volatile last_words)() = nullptr;

void OnInterrupt(int) {
  interrupts = interrupts + 1;
  if (interrupts < 2) return;
  if (last_words != nullptr) last_words();
  _exit(130);
}

double Number(const Args& args, std::string_view name, double otherwise) {
  if (!args.Has(name)) return otherwise;
  const std::string text = args.Text(name, "");
  double value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end != text.data() + text.size()) ThrowUsage("{}='{}': expected a number", name, text);
  return value;
}

constexpr const char* kDrawing[] = {"top_k", "top_p", "min_p"};  // of no use without draws

bool IsConfig(const std::string& word) { return word.ends_with(".yml") || word.ends_with(".yaml"); }

}  // namespace

std::vector<OptionSpec> GenerationOptions() {
  return {{"max_tokens", "N", "new tokens at most (default: what max_target_length leaves, else 256)"},
          {"temperature", "T", "0: always the most likely token"},
          {"top_k", "K", "draw among the K most likely tokens"},
          {"top_p", "P", "draw among the most likely tokens that have the share P together"},
          {"min_p", "P", "leave out tokens less likely than P times the most likely one"},
          {"repetition_penalty", "R", "above 1: tokens that were there already become less likely"},
          {"seed", "N", "of the draws; the same seed gives the same text"},
          {"stop", "TEXT", "end before this text"},
          {"adapter", "FOLDER", "a LoRA adapter in PEFT's form, applied unmerged"}};
}

GenerationWords ReadGenerationWords(const Args& args) {
  std::vector<std::string> words, places;
  for (const std::string& word : args.positionals()) (IsConfig(word) && words.empty() ? words : places).push_back(word);
  if (places.size() > 1) {
    throw Error(ErrorCode::kUsage, fmt::format("unexpected argument '{}': one model at a time", places[1]),
                fmt::format("a text to continue is given as prompt='{}'", places[1]));
  }
  words.insert(words.end(), args.settings().begin(), args.settings().end());
  GenerationWords result{Settings::Load({.words = words, .environment = ProcessEnvironment()}), "", !places.empty()};
  result.settings.RequireSupported();
  const std::string key = result.settings.Text("load_parameters_path");
  if (!places.empty() && !key.empty()) ThrowUsage("{} and load_parameters_path={}: give one model", places[0], key);
  result.model = places.empty() ? key : places[0];
  if (result.model.empty()) {
    throw Error(ErrorCode::kUsage, "no model is given",
                "name a checkpoint, a model folder or file, or give load_parameters_path=MODEL");
  }
  return result;
}

std::unique_ptr<engine::ServingModel> OpenForGeneration(const Args& args, const GenerationWords& words, int64_t slots) {
  engine::Request choices;  // a typo is told before a model is loaded
  choices.sampling = SamplingFrom(args, words.settings, {}, {});
  if (args.Has("stop")) choices.stop = {args.Text("stop", "")};
  if (args.Has("max_tokens")) args.Int("max_tokens", 0, 0, INT32_MAX);
  engine::ValidateChoices(choices);
  const std::string adapter = words.settings.Text("hf_lora_adapter_path");
  if (args.Has("adapter") && !adapter.empty()) {
    throw Error(ErrorCode::kUsage,
                fmt::format("adapter={} and hf_lora_adapter_path={} ({}): one adapter at a time",
                            args.Text("adapter", ""), adapter, words.settings.OriginOf("hf_lora_adapter_path")),
                "give one of them; hf_lora_adapter_path= without a value takes back the config's");
  }
  const quant::RecipeChoice recipe = quant::ChooseRecipe(words.settings);
  engine::ServingOptions options = engine::ServingOptionsFrom(words.settings, recipe, words.model);
  options.slots = slots;
  options.threads = args.Threads();
  if (args.Has("adapter")) options.adapters = {{kAdapter, args.Text("adapter", "")}};
  auto model = engine::ServingModel::Open(options);
  if (!args.Switch("quiet")) {
    const std::string ignored = words.settings.IgnoredNote();
    if (!ignored.empty()) fmt::print(stderr, "note: {}\n", ignored);
    for (const std::string& note : model->loaded().notes) fmt::print(stderr, "note: {}\n", note);
    fmt::print(stderr, "model     {}\n", model->Describe());
  }
  return model;
}

Sampling SamplingFrom(const Args& args, const Settings& settings, const engine::GenerationDefaults& defaults,
                      const Sampling& otherwise) {
  Sampling sampling = defaults.given ? defaults.sampling : otherwise;
  bool chosen = defaults.given || args.Has("temperature");
  for (const char* key : {"decode_sampling_strategy", "decode_sampling_nucleus_p", "decode_sampling_top_k",
                          "decode_sampling_temperature"}) {
    if (!settings.IsAskedFor(key)) continue;
    chosen = true;
    sampling = engine::SamplingOfStrategy(
        settings.Text("decode_sampling_strategy"), settings.Int("decode_sampling_top_k"),
        settings.Number("decode_sampling_nucleus_p"), settings.Number("decode_sampling_temperature"));
    break;
  }
  const bool draws = std::ranges::any_of(kDrawing, [&](const char* name) { return args.Has(name); });
  if (!chosen && draws && sampling.temperature == 0) sampling.temperature = 1;
  sampling.temperature = Number(args, "temperature", sampling.temperature);
  sampling.top_k = args.Int("top_k", sampling.top_k, 0, INT32_MAX);
  sampling.top_p = Number(args, "top_p", sampling.top_p);
  sampling.min_p = Number(args, "min_p", sampling.min_p);
  sampling.repetition_penalty = Number(args, "repetition_penalty", sampling.repetition_penalty);
  sampling.seed = static_cast<uint64_t>(args.Int("seed", 0, 0, INT64_MAX));
  return sampling;
}

std::string IdleSamplingNote(const Args& args, const Sampling& sampling) {
  std::vector<std::string> idle;
  for (const char* name : kDrawing) {
    if (args.Has(name)) idle.emplace_back(name);
  }
  if (sampling.temperature != 0 || idle.empty()) return "";
  return fmt::format("temperature is 0, the most likely token is always taken: no effect of {}", fmt::join(idle, ", "));
}

int64_t MaxNewTokens(const Args& args, const Settings& settings, const engine::ServingModel& model, int64_t prompt) {
  constexpr int64_t kDefault = 256;
  const int64_t room = std::max<int64_t>(model.context_length() - prompt, 0);
  if (args.Has("max_tokens")) return args.Int("max_tokens", 0, 0, INT32_MAX);
  if (settings.IsAskedFor("max_target_length")) return std::max<int64_t>(room, 1);
  return std::max<int64_t>(1, std::min(room, model.defaults().max_new_tokens.value_or(kDefault)));
}

InterruptGuard::InterruptGuard(void (*before_exit)()) {
  Clear();
  last_words = before_exit;
  struct sigaction action = {};
  action.sa_handler = OnInterrupt;  // without SA_RESTART: a read from the terminal ends too
  sigaction(SIGINT, &action, nullptr);
}

InterruptGuard::~InterruptGuard() { std::signal(SIGINT, SIG_DFL); }

bool InterruptGuard::Interrupted() { return interrupts > 0; }
void InterruptGuard::Clear() { interrupts = 0; }

engine::Answers Generate(engine::Service& service, const engine::Request& request,
                         const std::function<void(const engine::Event&)>& show) {
  // The engine's thread only queues: a terminal that does not read must not hold it up.
  struct Queue {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<engine::Event> events;
    bool done = false;
  };
  const auto queue = std::make_shared<Queue>();
  const engine::Collector collector;
  const engine::Listener collect = collector.listener();
  engine::Listener listener;
  listener.on_event = [queue, collect](engine::Event&& event) {
    {
      const std::lock_guard lock(queue->mutex);
      queue->events.push_back(event);
    }
    queue->changed.notify_all();
    collect.on_event(std::move(event));
  };
  listener.on_done = [queue, collect](const engine::Outcome& outcome) {
    collect.on_done(outcome);
    const std::lock_guard lock(queue->mutex);
    queue->done = true;
    queue->changed.notify_all();
  };
  const engine::RequestId id = service.Submit(request, listener);
  bool cancelled = false;
  std::unique_lock lock(queue->mutex);
  while (true) {
    queue->changed.wait_for(lock, std::chrono::milliseconds(50), [&] { return queue->done || !queue->events.empty(); });
    std::deque<engine::Event> events = std::move(queue->events);
    queue->events.clear();
    const bool done = queue->done;
    lock.unlock();
    for (const engine::Event& event : events) show(event);
    if (InterruptGuard::Interrupted() && !cancelled) {
      cancelled = true;
      service.Cancel(id);
    }
    if (done) return collector.Wait();
    lock.lock();
  }
}

void ThrowIfFailed(const engine::Answers& answers) {
  for (size_t i = 0; i < answers.samples.size(); ++i) {
    const engine::Answer& answer = answers.samples[i];
    if (answer.finish != engine::Finish::kError) continue;
    throw Error(answer.error_code == "nan_logits" ? ErrorCode::kNumbers : ErrorCode::kJob,
                answers.samples.size() > 1 ? fmt::format("sample {}: {}", i, answer.error) : answer.error);
  }
}

engine::Finish FinishOf(const engine::Answers& answers) {
  using engine::Finish;
  for (const Finish finish : {Finish::kError, Finish::kCancelled, Finish::kLength}) {
    if (std::ranges::any_of(answers.samples, [&](const engine::Answer& one) { return one.finish == finish; })) {
      return finish;
    }
  }
  return Finish::kStop;
}

std::string TextEventLine(const engine::Event& event) {
  if (event.text.empty()) return "";
  return JsonLine({{"event", "text"}, {"sample", event.sample}, {"text", event.text}, {"tokens", event.tokens}});
}

std::string ForTerminal(std::string_view text) {
  constexpr std::string_view kReplacement = "\uFFFD";
  std::string shown;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0U;
    if (byte == 0xC2 && next >= 0x80 && next < 0xA0) {  // U+0080 … U+009F
      shown += kReplacement;
      ++i;
    } else if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F) {
      shown += kReplacement;
    } else {
      shown += text[i];
    }
  }
  return shown;
}

void PrintModelText(std::string_view text) {
  Print(isatty(STDOUT_FILENO) != 0 ? ForTerminal(text) : std::string(text));
}

void Print(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

std::string JsonLine(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string SpeedLine(const engine::Usage& usage, engine::Finish finish) {
  const auto rate = [](double tokens, double seconds) { return seconds > 0 ? tokens / seconds : 0.0; };
  const int64_t run = usage.prompt_tokens - usage.cached_tokens;
  // The first token comes with the prompt.
  const auto later = static_cast<double>(std::max<int64_t>(usage.completion_tokens - 1, 0));
  return fmt::format("prompt    {} tokens{}, {:.2f} s, {:.1f} tok/s   generated {} tokens, {:.2f} s, {:.1f} tok/s   {}",
                     usage.prompt_tokens,
                     usage.cached_tokens > 0 ? fmt::format(", {} cached", usage.cached_tokens) : "",
                     usage.prefill_seconds, rate(static_cast<double>(run), usage.prefill_seconds),
                     usage.completion_tokens, usage.decode_seconds, rate(later, usage.decode_seconds), NameOf(finish));
}

std::string_view NameOf(engine::Finish finish) {
  switch (finish) {
    case engine::Finish::kStop:
      return "stop";
    case engine::Finish::kLength:
      return "length";
    case engine::Finish::kCancelled:
      return "cancelled";
    case engine::Finish::kError:
      return "error";
  }
  return "error";
}

}  // namespace octavo
