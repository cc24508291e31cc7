// octavo chat: a conversation on the terminal, through the model's chat template.
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "octavo/base/error.h"
#include "octavo/base/publish.h"
#include "octavo/cli/chat_input.h"
#include "octavo/cli/error_text.h"
#include "octavo/cli/generation.h"
#include "octavo/cli/verbs.h"
#include "octavo/text/template_json.h"

namespace octavo {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kHelp =
    "/help          this list\n"
    "/reset         forget the conversation (the system message stays)\n"
    "/save FILE     write the conversation as JSON messages\n"
    "/system TEXT   set the system message and start over\n"
    "/seed N        seed of the next answers\n"
    "Ctrl-C stops the answer, Ctrl-D leaves.\n";

void Print(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

std::string Dump(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

// One line without its end; nullopt at the end of the input. An interrupt gives an empty line.
std::optional<std::string> ReadLine(bool terminal) {
  if (terminal) fmt::print(stderr, "> ");
  std::string line;
  while (true) {
    char byte = 0;
    const ssize_t count = read(STDIN_FILENO, &byte, 1);
    if (count < 0 && errno == EINTR) {
      fmt::print(stderr, "\n(Ctrl-D leaves)\n");
      InterruptGuard::Clear();
      return "";
    }
    if (count <= 0) return line.empty() ? std::nullopt : std::optional(line);
    if (byte == '\n') return line;
    line += byte;
  }
}

class Conversation {
 public:
  Conversation(const Args& args, const GenerationWords& words, engine::ServingModel& model,
               const text::ChatTemplate& chat, std::map<std::string, std::string> special_tokens)
      : args_(args), model_(model), template_(chat), special_tokens_(std::move(special_tokens)) {
    engine::Sampling usual;
    usual.temperature = 0.7;
    usual.top_p = 0.95;
    sampling_ = SamplingFrom(args, words.settings, model.defaults(), usual);
    if (args.Has("system")) system_ = args.Text("system", "");
    Reset();
  }

  void Reset() {
    messages_ = Json::array();
    if (!system_.empty()) messages_.push_back({{"role", "system"}, {"content", system_}});
  }

  // A line that begins with a stroke. Errors are for the caller to print.
  void Command(const std::string& line) {
    const size_t space = line.find(' ');
    const std::string name = line.substr(0, space), rest = space == std::string::npos ? "" : line.substr(space + 1);
    if (name == "/reset") {
      Reset();
      fmt::print(stderr, "the conversation is empty\n");
    } else if (name == "/save") {
      if (rest.empty()) ThrowUsage("/save FILE");
      std::error_code ignored;
      if (std::filesystem::exists(std::filesystem::symlink_status(rest, ignored))) {
        throw Error(ErrorCode::kUsage, fmt::format("{} exists; nothing was saved", rest), "/save another FILE");
      }
      FilePublisher file(rest, Replace::kNo);
      file.Write(Dump(messages_, 2));
      file.Publish();
      fmt::print(stderr, "saved {} messages to {}\n", messages_.size(), rest);
    } else if (name == "/system") {
      system_ = rest;
      Reset();
      fmt::print(stderr, "{}; the conversation is empty\n",
                 rest.empty() ? "no system message" : "the system message is set");
    } else if (name == "/seed") {
      uint64_t seed = 0;
      const auto [end, problem] = std::from_chars(rest.data(), rest.data() + rest.size(), seed);
      if (problem != std::errc() || end != rest.data() + rest.size()) {
        ThrowUsage("/seed N: '{}' is no whole number from 0 to {}", rest, UINT64_MAX);
      }
      sampling_.seed = seed;
      fmt::print(stderr, "seed {}\n", seed);
    } else if (name == "/help") {
      fmt::print(stderr, "{}", kHelp);
    } else {
      throw Error(ErrorCode::kUsage, fmt::format("there is no command {}", name), kHelp);
    }
  }

  // One turn. The question is taken back when it could not be asked or answered.
  void Say(const std::string& text, engine::Service& service) {
    messages_.push_back({{"role", "user"}, {"content", text}});
    engine::Answers answers;
    try {
      answers = Ask(service);
      ThrowIfFailed(answers.samples[0]);
    } catch (const Error&) {
      messages_.erase(messages_.size() - 1);
      throw;
    }
    const engine::Answer& answer = answers.samples[0];
    messages_.push_back({{"role", "assistant"}, {"content", answer.text}});
    if (args_.Switch("json")) {
      Print(Dump({{"event", "message"},
                  {"role", "assistant"},
                  {"content", answer.text},
                  {"finish_reason", NameOf(answer.finish)},
                  {"prompt_tokens", answers.usage.prompt_tokens},
                  {"completion_tokens", answers.usage.completion_tokens}}));
    } else {
      Print("\n");
    }
    if (!args_.Switch("quiet")) fmt::print(stderr, "{}\n", SpeedLine(answers.usage, answer.finish));
  }

 private:
  engine::Answers Ask(engine::Service& service) {
    text::ChatInputs inputs;
    inputs.messages = text::jinja::FromJson(messages_);
    inputs.add_generation_prompt = true;
    inputs.special_tokens = special_tokens_;
    const text::Rendered rendered = template_.Render(inputs);
    const std::vector<text::TextPiece> pieces = rendered.Pieces();
    engine::Request request;
    request.prompt = model_.tokenizer().Encode(pieces, false);
    request.sampling = sampling_;
    if (!model_.adapters().Names().empty()) request.adapter = model_.adapters().Names()[0];
    request.max_new_tokens = args_.Has("max_tokens")
                                 ? args_.Int("max_tokens", 0, 1, INT32_MAX)
                                 : std::max<int64_t>(1, model_.context_length() - std::ssize(request.prompt));
    if (args_.Has("stop")) request.stop = {args_.Text("stop", "")};
    const bool streams = !args_.Switch("json");
    return Generate(service, request, [&](const engine::Event& event) {
      if (streams) Print(event.text);
    });
  }

  const Args& args_;
  engine::ServingModel& model_;
  const text::ChatTemplate& template_;
  std::map<std::string, std::string> special_tokens_;
  engine::Sampling sampling_;
  std::string system_;
  Json messages_;
};

// The template of the model's folder or of chat_template=FILE.
text::ChatTemplateFiles Templates(const Args& args, const GenerationWords& words, const engine::ServingModel& model) {
  const std::string given = args.Text("chat_template", "");
  try {
    return FindChatTemplates(model.options().tokenizer_path, model.stored().tokenizer, words.model, given);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUsage || !given.empty()) throw;
    throw Error(ErrorCode::kUsage, error.message(), "use octavo generate, or chat_template=FILE");
  }
}

int Run(const Args& args) {
  const GenerationWords words = ReadGenerationWords(args);
  const auto model = OpenForGeneration(args, words, 1);
  const text::ChatTemplateFiles files = Templates(args, words, *model);
  const text::ChatTemplate chat = text::ChatTemplate::Parse(files.Choose(false));
  const auto scheduler = model->Start();
  Conversation conversation(args, words, *model, chat, files.special_tokens);
  const bool terminal = isatty(STDIN_FILENO) != 0;
  if (terminal && !args.Switch("quiet")) fmt::print(stderr, "{}", kHelp);
  const InterruptGuard guard;
  while (const std::optional<std::string> line = ReadLine(terminal)) {
    if (line->empty()) continue;
    try {
      if (line->front() == '/') {
        conversation.Command(*line);
      } else {
        conversation.Say(*line, *scheduler);
      }
    } catch (const Error& error) {
      if (!terminal) throw;  // a script wants to know
      fmt::print(stderr, "{}", ErrorText(error));
    }
    InterruptGuard::Clear();
  }
  if (terminal) fmt::print(stderr, "\n");
  return 0;
}

}  // namespace

VerbSpec ChatVerb() {
  std::vector<OptionSpec> options = {{"system", "TEXT", "the system message"},
                                     {"chat_template", "FILE", "a chat template instead of the model's own"}};
  for (const OptionSpec& option : GenerationOptions()) options.push_back(option);
  return {.name = "chat",
          .synopsis = "MODEL [key=value…]",
          .summary = "talk to a model on the terminal",
          .details =
              "Answers stream to stdout; /help lists what else a line can say. Without sampling options the model's\n"
              "generation_config.json counts, else temperature 0.7 and top_p 0.95. What was said before is not run\n"
              "again. Lines may come from a pipe too: one message a line, and an error then ends the program.\n"
              "  octavo chat out/x-int8 system='You are brief.'",
          .most_positionals = 2,
          .options = std::move(options),
          .run = Run,
          .takes_settings = true};
}

}  // namespace octavo
