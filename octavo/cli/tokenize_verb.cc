// octavo tokenize: text to token ids and back, and conversations through a model's chat template.
#include <filesystem>
#include <iostream>
#include <iterator>

#include <charconv>
#include <nlohmann/json.hpp>

#include "octavo/base/error.h"
#include "octavo/cli/chat_input.h"
#include "octavo/cli/verbs.h"
#include "octavo/text/tokenizer.h"
#include "octavo/text/unicode.h"

namespace octavo {
namespace {

using text::Tokenizer;

std::string ReadStdin() { return std::string(std::istreambuf_iterator<char>(std::cin), {}); }

// The words after the model, or standard input. A text with an end-of-line from a terminal or echo is taken as it is.
std::string GivenText(const Args& args) {
  const std::vector<std::string>& words = args.positionals();
  if (words.size() == 1) return ReadStdin();
  std::string text = words[1];
  for (size_t i = 2; i < words.size(); ++i) text += " " + words[i];
  return text;
}

std::vector<int32_t> ParseIds(std::string_view text) {
  std::vector<int32_t> ids;
  size_t at = 0;
  while (at < text.size()) {
    constexpr std::string_view kBetween = " \t\r\n,[]";
    const size_t begin = text.find_first_not_of(kBetween, at);
    if (begin == std::string_view::npos) break;
    const size_t end = std::min(text.find_first_of(kBetween, begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    int32_t id = 0;
    const auto [stop, problem] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (problem != std::errc() || stop != word.data() + word.size()) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("'{}' is not a token id", text::ReplaceInvalidUtf8(word.substr(0, 40))),
                  "--decode takes ids: octavo tokenize MODEL --decode 15339 1917");
    }
    ids.push_back(id);
    at = end;
  }
  return ids;
}

void Print(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

// Foreign text into JSON: bytes that are not UTF-8 become U+FFFD.
std::string Dump(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

void PrintIds(const std::vector<int32_t>& ids) {
  std::string line;
  for (int32_t id : ids) line += fmt::format("{}{}", line.empty() ? "" : " ", id);
  Print(line + "\n");
}

int RunDecode(const Args& args, const Tokenizer& tokenizer) {
  const std::vector<int32_t> ids = ParseIds(GivenText(args));
  const std::string text = tokenizer.Decode(ids, {.skip_special = args.Switch("skip_special")});
  if (args.Switch("json")) {
    Print(Dump({{"event", "text"}, {"text", text}, {"tokens", ids.size()}}));
  } else {
    Print(text);
    if (!text.ends_with('\n')) Print("\n");
  }
  return 0;
}

int RunTemplate(const Args& args, const Tokenizer& tokenizer, const std::string& model) {
  const text::Rendered rendered = RenderChat(model, args.Text("chat_template", ""), args.Text("template", ""),
                                             args.Switch("add_generation_prompt"));
  const std::vector<text::TextPiece> pieces = rendered.Pieces();
  const std::vector<int32_t> ids = tokenizer.Encode(pieces, args.Switch("add_special"));
  if (args.Switch("json")) {
    std::vector<std::string> tokens;
    for (int32_t id : ids) tokens.push_back(tokenizer.Token(id).value_or(""));
    Print(Dump({{"event", "tokens"}, {"ids", ids}, {"tokens", tokens}, {"text", rendered.text}}));
  } else {
    PrintIds(ids);
  }
  return 0;
}

int RunEncode(const Args& args, const Tokenizer& tokenizer) {
  const text::EncodeOptions options{.add_special = args.Switch("add_special"),
                                    .parse_special = args.Switch("parse_special")};
  const std::string input = GivenText(args);
  const bool json = args.Switch("json");
  if (!json && !args.Switch("offsets")) {
    PrintIds(tokenizer.Encode(input, options));
    return 0;
  }
  const text::Encoding found = tokenizer.EncodeWithOffsets(input, options);
  if (json) {
    nlohmann::ordered_json offsets = nlohmann::ordered_json::array();
    nlohmann::ordered_json chars = nlohmann::ordered_json::array();
    for (size_t i = 0; i < found.ids.size(); ++i) {
      offsets.push_back({found.bytes[i].begin, found.bytes[i].end});
      chars.push_back({found.chars[i].begin, found.chars[i].end});
    }
    Print(Dump({{"event", "tokens"},
                {"ids", found.ids},
                {"tokens", found.tokens},
                {"byte_offsets", offsets},
                {"offsets", chars}}));
    return 0;
  }
  for (size_t i = 0; i < found.ids.size(); ++i) {
    fmt::print("{:>8}  {:>6} {:>6}  {}\n", found.ids[i], found.bytes[i].begin, found.bytes[i].end,
               text::ReplaceInvalidUtf8(found.tokens[i]));
  }
  return 0;
}

int Run(const Args& args) {
  const std::string& model = args.positionals()[0];
  const bool decode = args.Switch("decode");
  if (decode && args.Has("template")) ThrowUsage("octavo tokenize: --decode and --template exclude each other");
  const std::unique_ptr<Tokenizer> tokenizer = text::LoadTokenizer(args.Text("tokenizer_path", model));
  if (!args.Switch("quiet")) {
    for (const std::string& note : tokenizer->notes()) fmt::print(stderr, "note: {}\n", note);
  }
  if (decode) return RunDecode(args, *tokenizer);
  if (args.Has("template")) return RunTemplate(args, *tokenizer, model);
  return RunEncode(args, *tokenizer);
}

}  // namespace

VerbSpec TokenizeVerb() {
  return {.name = "tokenize",
          .synopsis = "MODEL|FILE [TEXT…] [--offsets] [--json] | --decode [IDS…] | --template=MESSAGES.json",
          .summary = "text to token ids and back, with the ids of the model's own library",
          .details =
              "MODEL is a folder with tokenizer.json, tokenizer.model or a tiktoken file, or such a file, or a GGUF\n"
              "file; 'bytes' is the tokenizer that needs none. Without TEXT (or IDS) standard input is read; words\n"
              "are joined by one space, and after -- nothing is taken for an option. Special tokens written in the\n"
              "text are plain text unless --parse-special is given; in a rendered chat they count where the\n"
              "template wrote them, never where a message did.\n"
              "  octavo tokenize out/tok Hello world\n"
              "  octavo tokenize out/tok --decode 1 15043 3186\n"
              "  octavo tokenize out/tok --template=messages.json --add-generation-prompt",
          .least_positionals = 1,
          .most_positionals = 1 << 20,
          .options = {{"decode", "", "ids to text"},
                      {"offsets", "", "one token a line: id, first byte, end, token"},
                      {"template", "FILE", "a JSON file of messages, rendered by the model's chat template"},
                      {"chat_template", "FILE", "a chat template instead of the model's own"},
                      {"add_generation_prompt", "", "end the rendered chat where the assistant begins"},
                      {"add_special", "", "put BOS, EOS and the like around the text as the tokenizer does"},
                      {"parse_special", "", "let special tokens written in the text become their ids"},
                      {"skip_special", "", "with --decode: leave special tokens out"},
                      {"tokenizer_path", "PATH", "the tokenizer, if it is not beside the model"}},
          .run = Run};
}

}  // namespace octavo
