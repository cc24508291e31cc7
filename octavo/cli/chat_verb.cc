// octavo chat: a conversation on the terminal, through the model's chat template.
#include <unistd.h>

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "octavo/base/error.h"
#include "octavo/base/publish.h"
#include "octavo/cli/chat_input.h"
#include "octavo/cli/chat_lines.h"
#include "octavo/cli/error_text.h"
#include "octavo/cli/generation.h"
#include "octavo/cli/verbs.h"
#include "octavo/engine/validate.h"
#include "octavo/text/template_json.h"
#include "octavo/weights/stored_model.h"

namespace octavo {
namespace {

using Json = nlohmann::ordered_json;

// No line is wider than 40 columns.
constexpr const char* kHelp =
    "/help         this list\n"
    "/reset        forget the conversation\n"
    "/save FILE    write it as JSON messages\n"
    "/system TEXT  begin anew, told TEXT\n"
    "/seed N       seed of the next answers\n"
    "Ctrl-C stops an answer, Ctrl-D leaves.\n";

class Conversation {
 public:
  Conversation(const Args& args, const GenerationWords& words, engine::ServingModel& model,
               const text::ChatTemplate& chat, std::map<std::string, std::string> special_tokens)
      : args_(args), model_(model), template_(chat), special_tokens_(std::move(special_tokens)) {
    engine::Sampling usual;
    usual.temperature = 0.7;
    usual.top_p = 0.95;
    sampling_ = SamplingFrom(args, words.settings, model.defaults(), usual);
    if (!args.Switch("quiet")) PrintNotes(words);
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
      fmt::print(stderr, "the conversation is empty{}\n", system_.empty() ? "" : "; the system message stays");
    } else if (name == "/save") {
      if (rest.empty()) throw Error(ErrorCode::kUsage, "/save: no file is named", "/save FILE");
      std::error_code ignored;
      if (std::filesystem::exists(std::filesystem::symlink_status(rest, ignored))) {
        throw Error(ErrorCode::kUsage, fmt::format("{} exists; nothing was saved", rest), "/save another FILE");
      }
      FilePublisher file(rest, Replace::kNo);
      file.Write(messages_.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
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
      ThrowIfFailed(answers);
    } catch (const Error& error) {
      messages_.erase(messages_.size() - 1);
      const auto* refused = dynamic_cast<const engine::RequestError*>(&error);
      if (refused == nullptr || refused->reason != "context_length_exceeded" || messages_.empty()) throw;
      throw Error(error.code(), error.message(), error.hint() + "\nthe whole conversation counts: /reset forgets it");
    }
    const engine::Answer& answer = answers.samples[0];
    messages_.push_back({{"role", "assistant"}, {"content", answer.text}});
    if (args_.Switch("json")) {
      Print(JsonLine({{"event", "message"},
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
    const bool json = args_.Switch("json");
    return Generate(service, request, [&](const engine::Event& event) {
      if (json) {
        Print(TextEventLine(event));
      } else {
        PrintModelText(event.text);
      }
    });
  }

  // What would otherwise do nothing without a word.
  void PrintNotes(const GenerationWords& words) const {
    const std::string idle = IdleSamplingNote(args_, sampling_);
    if (!idle.empty()) fmt::print(stderr, "note: {}\n", idle);
    if (words.settings.Bool("return_log_prob")) {
      fmt::print(stderr, "note: return_log_prob=true ({}) has no effect in a conversation\n",
                 words.settings.OriginOf("return_log_prob"));
    }
  }

  const Args& args_;
  engine::ServingModel& model_;
  const text::ChatTemplate& template_;
  std::map<std::string, std::string> special_tokens_;
  engine::Sampling sampling_;
  std::string system_;
  Json messages_;
};

// The template of the model's folder or of chat_template=FILE. It is looked for before the model is loaded: without one
// there will be no conversation.
text::ChatTemplateFiles Templates(const Args& args, const GenerationWords& words) {
  const std::string given = args.Text("chat_template", ""), tokenizer = words.settings.Text("tokenizer_path");
  try {
    return FindChatTemplates(tokenizer, weights::OpenStored(words.model).tokenizer, words.model, given);
  } catch (const Error& error) {
    if (!error.message().starts_with("no chat template") || !given.empty()) throw;
    throw Error(ErrorCode::kUsage, error.message(), "use octavo generate, or chat_template=FILE");
  }
}

bool IsBlank(const std::string& line) { return line.find_first_not_of(" \t\r") == std::string::npos; }

// Until the input ends. Ctrl-C on a terminal stops an answer and nothing else; it ends a script, with 130.
int Talk(Conversation& conversation, engine::Service& service, bool terminal) {
  const InterruptGuard guard(&RestoreTerminal);
  ChatLines lines(STDIN_FILENO, terminal);
  std::string line;
  while (true) {
    if (terminal) fmt::print(stderr, "> ");
    try {
      const ChatLines::What what = lines.Next(line);
      if (what == ChatLines::What::kEnd) break;
      if (what == ChatLines::What::kInterrupt) {
        if (terminal) fmt::print(stderr, "\n(Ctrl-D leaves)\n");
      } else if (line.starts_with('/') && line.find('\n') == std::string::npos) {  // a text was pasted otherwise
        conversation.Command(line);
      } else if (!IsBlank(line)) {
        conversation.Say(line, service);
      }
    } catch (const Error& error) {
      if (!terminal) throw;  // a script wants to know
      fmt::print(stderr, "{}", ErrorText(error));
    }
    if (!terminal && InterruptGuard::Interrupted()) return 130;
    InterruptGuard::Clear();
  }
  if (terminal) fmt::print(stderr, "\n");
  return 0;
}

int Run(const Args& args) {
  const GenerationWords words = ReadGenerationWords(args);
  if (words.settings.OriginOf("prompt") == "command line") {
    throw Error(ErrorCode::kUsage, "prompt= is not for a conversation: what is said comes from the terminal or a pipe",
                "octavo generate continues a prompt; system= sets the system message");
  }
  const text::ChatTemplateFiles files = Templates(args, words);
  const text::ChatTemplate chat = text::ChatTemplate::Parse(files.Choose(false));
  const auto model = OpenForGeneration(args, words, 1);
  const auto scheduler = model->Start();
  Conversation conversation(args, words, *model, chat, files.special_tokens);
  const bool terminal = isatty(STDIN_FILENO) != 0;
  if (terminal && !args.Switch("quiet")) fmt::print(stderr, "{}", kHelp);
  return Talk(conversation, *scheduler, terminal);
}

}  // namespace

VerbSpec ChatVerb() {
  std::vector<OptionSpec> options = {{"system", "TEXT", "the system message"},
                                     {"chat_template", "FILE", "a chat template instead of the model's own"}};
  for (const OptionSpec& option : GenerationOptions()) options.push_back(option);
  return {
      .name = "chat",
      .synopsis = "MODEL [key=value…]",
      .summary = "talk to a model on the terminal",
      .details =
          "Answers stream to stdout; /help lists what else a line can say. Without sampling options the model's\n"
          "generation_config.json counts, else temperature 0.7 and top_p 0.95. What was said before is not run\n"
          "again. A text that is pasted is one message, however many lines it has. Lines may come from a pipe too:\n"
          "one message a line, and an error or Ctrl-C then ends the program.\n"
          "  octavo chat out/x-int8 system='You are brief.'",
      .most_positionals = 2,
      .options = std::move(options),
      .run = Run,
      .takes_settings = true};
}

}  // namespace octavo
