// octavo inspect: what a model's files hold. Here: its chat template and its tokenizer, and the way to the others.
#include <fmt/ranges.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "octavo/base/error.h"
#include "octavo/cli/chat_input.h"
#include "octavo/cli/inspect_model.h"
#include "octavo/cli/inspect_run_verb.h"
#include "octavo/cli/verbs.h"
#include "octavo/text/tokenizer.h"

namespace octavo {
namespace {

std::string Dump(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

void Print(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

// The source goes to standard output, so that it can be kept and edited; what is known about it to standard error.
int InspectTemplate(const Args& args) {
  const std::string& model = args.positionals()[0];
  const std::string given = args.Text("chat_template", ""), name = args.Text("name", "");
  if (args.Has("messages")) {
    const text::Rendered rendered =
        RenderChat(model, given, args.Text("messages", ""), args.Switch("add_generation_prompt"), name);
    Print(args.Switch("json") ? Dump({{"event", "rendered"}, {"text", rendered.text}}) : rendered.text);
    return 0;
  }
  const text::ChatTemplateFiles files = FindChatTemplates(model, given);
  const std::string& source = files.Choose(false, name);
  std::vector<std::string> names;
  for (const auto& [one, text] : files.templates) names.push_back(one);
  const bool json = args.Switch("json");
  if (!json) {
    Print(source);
    if (!source.ends_with('\n')) Print("\n");
    std::fflush(stdout);
  }
  const text::ChatTemplate parsed = text::ChatTemplate::Parse(source);
  if (json) {
    Print(Dump({{"event", "template"},
                {"name", name.empty() ? "default" : name},
                {"names", names},
                {"source", source},
                {"variables", parsed.variables()},
                {"generation_blocks", parsed.has_generation()},
                {"special_tokens", files.special_tokens}}));
  } else if (!args.Switch("quiet")) {
    fmt::print(stderr, "templates  {}\n", fmt::join(names, ", "));
    fmt::print(stderr, "reads      {}\n", fmt::join(parsed.variables(), ", "));
    for (const auto& [role, token] : files.special_tokens) fmt::print(stderr, "special    {} {}\n", role, token);
    fmt::print(stderr, "ok         every construct is supported\n");
  }
  return 0;
}

int InspectTokenizer(const Args& args) {
  const std::unique_ptr<text::Tokenizer> tokenizer = text::LoadTokenizer(args.positionals()[0]);
  nlohmann::ordered_json special = nlohmann::ordered_json::object();
  int64_t count = 0;
  for (int32_t id = 0; id < tokenizer->vocabulary_size(); ++id) count += tokenizer->IsSpecial(id) ? 1 : 0;
  const text::RoleIds& roles = tokenizer->roles();
  const auto add = [&](const char* role, const std::optional<int32_t>& id) {
    if (id) special[role] = {{"id", *id}, {"token", tokenizer->Token(*id).value_or("")}};
  };
  add("bos", roles.bos);
  add("eos", roles.eos);
  add("unknown", roles.unknown);
  add("pad", roles.pad);
  if (args.Switch("json")) {
    Print(Dump({{"event", "tokenizer"},
                {"kind", tokenizer->description()},
                {"vocabulary_size", tokenizer->vocabulary_size()},
                {"special_tokens", count},
                {"roles", special},
                {"notes", tokenizer->notes()}}));
    return 0;
  }
  fmt::print("tokenizer  {}   {} ids, {} special\n", tokenizer->description(), tokenizer->vocabulary_size(), count);
  for (const auto& [role, token] : special.items()) {
    fmt::print("{:<10} {} {}\n", role, token["id"].get<int32_t>(), token["token"].get<std::string>());
  }
  for (const std::string& note : tokenizer->notes()) fmt::print("note       {}\n", note);
  return 0;
}

// A folder that holds a tokenizer and no weights: what `octavo tokenizer train` makes.
bool IsTokenizerAlone(const std::filesystem::path& path) {
  return std::filesystem::exists(path / "tokenizer.json") && !std::filesystem::exists(path / "config.json") &&
         !std::filesystem::exists(path / "model.safetensors") &&
         !std::filesystem::exists(path / "model.safetensors.index.json");
}

int Run(const Args& args) {
  const bool chat = args.Switch("template"), tokenizer = args.Switch("tokenizer");
  if (chat && tokenizer) ThrowUsage("octavo inspect: --template and --tokenizer exclude each other");
  if (chat) return InspectTemplate(args);
  if (tokenizer) return InspectTokenizer(args);
  if (IsTokenizerAlone(args.positionals()[0])) {
    throw Error(ErrorCode::kUsage, fmt::format("{} holds a tokenizer and no model", args.positionals()[0]),
                "give --template or --tokenizer to see it");
  }
  const bool quant = args.Switch("quant");
  if (quant) InspectQuant(args);
  if (quant && !args.Switch("tensors") && !args.Switch("verify")) return 0;
  return IsRunOrCheckpoint(args.positionals()[0]) ? InspectRun(args) : InspectModel(args);
}

}  // namespace

VerbSpec InspectVerb() {
  return {
      .name = "inspect",
      .synopsis = "PATH [--tensors] [--quant] [--verify] | --template [messages=FILE] | --tokenizer",
      .summary = "what a run, a checkpoint or a model's files hold; one digest of all bits",
      .details =
          "Of a run or a checkpoint: step, tensors, and one digest of all parameters, optimizer and recipe state.\n"
          "  octavo inspect out/x\n"
          "  octavo inspect out/x/checkpoints/20 --verify\n"
          "Of a model folder, a GGUF, safetensors or llama2.c file: what Octavo takes it for, its tensors as the "
          "files\n"
          "name them, sizes by type; architectures that Octavo cannot run too. --quant shows every quantized "
          "parameter:\n"
          "format, tile, least, median and largest scale, a histogram of the scales over powers of two.\n"
          "  octavo inspect model.gguf --tensors\n"
          "  octavo inspect out/x-int8 --quant --json\n"
          "--template prints the source of the chat template (chat_template.jinja, tokenizer_config.json, GGUF) and\n"
          "checks that every construct is supported; with messages=FILE it prints the rendered text instead.\n"
          "  octavo inspect --template out/tok > chat.jinja\n"
          "  octavo inspect --template out/tok messages=messages.json --add-generation-prompt",
      .least_positionals = 1,
      .most_positionals = 1,
      .options = {{"tensors", "", "a line per tensor: type, shape, digest"},
                  {"quant", "", "a line per quantized parameter: format, tile, scales"},
                  {"verify", "", "read all data and check every digest"},
                  {"template", "", "the chat template"},
                  {"tokenizer", "", "kind, number of ids, special tokens"},
                  {"name", "NAME", "which of several templates"},
                  {"chat_template", "FILE", "a chat template instead of the model's own"},
                  {"messages", "FILE", "a JSON file of messages to render"},
                  {"add_generation_prompt", "", "end the rendered chat where the assistant begins"}},
      .run = Run};
}

}  // namespace octavo
