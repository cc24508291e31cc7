// octavo tokenizer train: a byte-level BPE tokenizer from local text.
#include <algorithm>
#include <chrono>
#include <deque>
#include <filesystem>
#include <sstream>

#include <nlohmann/json.hpp>

#include "octavo/base/error.h"
#include "octavo/base/mapped_file.h"
#include "octavo/base/publish.h"
#include "octavo/cli/verbs.h"
#include "octavo/text/bpe_trainer.h"
#include "octavo/text/tokenizer_json.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;

// The texts of files: a .jsonl file gives the "text" of each line, any other file itself.
class TrainingTexts {
 public:
  explicit TrainingTexts(std::span<const std::string> paths) {
    for (const std::string& path : paths) {
      const MappedFile& file = files_.emplace_back(path);
      const std::string_view bytes(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
      if (file.path().extension() == ".jsonl") {
        AddLines(bytes, path);
      } else {
        texts_.push_back(bytes);
      }
    }
  }
  std::span<const std::string_view> all() const { return texts_; }

 private:
  void AddLines(std::string_view rest, const std::string& path) {
    for (size_t number = 1; !rest.empty(); ++number) {
      const size_t end = std::min(rest.find('\n'), rest.size());
      const std::string_view line = rest.substr(0, end);
      rest.remove_prefix(std::min(end + 1, rest.size()));
      if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      const std::string where = fmt::format("{} line {}", path, number);
      const text::JsonValue object = text::ParseJson(line, where);
      texts_.push_back(owned_.emplace_back(object.At("text", where).String(where)));
    }
  }

  std::deque<MappedFile> files_;
  std::deque<std::string> owned_;
  std::vector<std::string_view> texts_;
};

std::vector<std::string> SplitList(const std::string& list) {
  std::vector<std::string> parts;
  std::istringstream stream(list);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

text::BpeTrainerOptions ReadOptions(const Args& args, bool chat) {
  text::BpeTrainerOptions options;
  if (!args.Has("vocab_size")) {
    throw Error(ErrorCode::kUsage, "octavo tokenizer train: vocab_size is missing",
                "for a first try vocab_size=8192; usual sizes are 4096 to 131072");
  }
  options.vocabulary_size = static_cast<int32_t>(args.Int("vocab_size", 0, 1, INT32_MAX));
  options.pattern = args.Text("pattern", options.pattern);
  options.min_frequency = args.Int("min_frequency", options.min_frequency, 1, INT64_MAX);
  if (args.Has("special_tokens")) options.special_tokens = SplitList(args.Text("special_tokens", ""));
  if (chat) {
    for (const char* token : {"<|im_start|>", "<|im_end|>"}) {
      std::vector<std::string>& special = options.special_tokens;
      if (std::find(special.begin(), special.end(), token) == special.end()) special.emplace_back(token);
    }
  }
  return options;
}

void Report(const Args& args, const text::TrainedBpe& trained, size_t files, const std::string& out, double seconds) {
  const size_t special = trained.options.special_tokens.size();
  const double bytes_per_id =
      static_cast<double>(trained.bytes) / static_cast<double>(std::max<int64_t>(1, trained.ids));
  if (args.Switch("json")) {
    const nlohmann::ordered_json line = {{"event", "tokenizer"},
                                         {"out", out},
                                         {"files", files},
                                         {"bytes", trained.bytes},
                                         {"words", trained.words},
                                         {"different_words", trained.different_words},
                                         {"vocabulary_size", trained.tokens.size()},
                                         {"special_tokens", special},
                                         {"merges", trained.merges.size()},
                                         {"bytes_per_token", bytes_per_id},
                                         {"seconds", seconds}};
    fmt::print("{}\n", line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    return;
  }
  fmt::print("read      {} file{}   {:.1f} MB   {} words, {} different\n", files, files == 1 ? "" : "s",
             static_cast<double>(trained.bytes) / 1e6, trained.words, trained.different_words);
  fmt::print("write     {}   {} ids: {} special, 256 bytes, {} merges   {:.1f} s\n", out, trained.tokens.size(),
             special, trained.merges.size(), seconds);
  fmt::print("          {:.2f} bytes a token on this text\n", bytes_per_id);
  if (trained.tokens.size() < static_cast<size_t>(trained.options.vocabulary_size) && !args.Switch("quiet")) {
    fmt::print(stderr, "note: only {} of vocab_size={}: no other pair occurs {} times; give more text\n",
               trained.tokens.size(), trained.options.vocabulary_size, trained.options.min_frequency);
  }
}

// --force replaces a tokenizer and nothing else: every file must be a part of one.
void CheckReplaceable(const fs::path& folder) {
  constexpr std::string_view kParts[] = {
      "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
      "merges.txt",     "chat_template.jinja",   "chat_template.json"};
  if (!fs::is_directory(folder)) return;  // nothing, or a file, which is refused when the folder is made
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_regular_file() && std::ranges::find(kParts, name) != std::end(kParts)) continue;
    throw Error(
        ErrorCode::kUsage,
        fmt::format("{} is not replaced: it holds '{}', which is no part of a tokenizer", folder.string(), name),
        "choose another folder with out=DIR, or remove it yourself");
  }
}

int Run(const Args& args) {
  const std::vector<std::string>& words = args.positionals();
  if (words[0] != "train") {
    throw Error(ErrorCode::kUsage, fmt::format("octavo tokenizer: '{}' is not known", words[0]), "there is: train");
  }
  if (words.size() < 2) {
    throw Error(ErrorCode::kUsage, "octavo tokenizer train: no files",
                "octavo tokenizer train FILES… vocab_size=N out=DIR");
  }
  const bool chat = args.Switch("chat"), force = args.Switch("force");
  const std::string out = args.Text("out", "");
  if (out.empty()) ThrowUsage("octavo tokenizer train: out=DIR is missing");
  const text::BpeTrainerOptions options = ReadOptions(args, chat);
  if (fs::exists(out) && !force) {
    throw Error(ErrorCode::kUsage, fmt::format("{} exists", out),
                "add --force to replace it; it is kept until the new one is complete");
  }
  if (force) CheckReplaceable(out);
  const auto start = std::chrono::steady_clock::now();
  ThreadPool pool(args.Threads());
  const TrainingTexts texts{std::span(words).subspan(1)};
  const text::TrainedBpe trained = text::TrainBpe(texts.all(), options, pool);
  std::error_code ignored;  // what is wrong with the folder shows when it is written to
  fs::create_directories(fs::absolute(out).lexically_normal().parent_path(), ignored);
  FolderPublisher folder(out, force ? Replace::kYes : Replace::kNo);
  folder.WriteFile("tokenizer.json", text::TokenizerJson(trained));
  folder.WriteFile("tokenizer_config.json", text::TokenizerConfigJson(trained, chat));
  folder.Publish();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  Report(args, trained, words.size() - 1, out, took.count());
  return 0;
}

}  // namespace

VerbSpec TokenizerVerb() {
  return {
      .name = "tokenizer",
      .synopsis = "train FILES… vocab_size=N out=DIR",
      .summary = "train a byte-level BPE tokenizer on local text",
      .details =
          "Writes tokenizer.json and tokenizer_config.json, which Hugging Face's libraries read too. The same files\n"
          "and options give the same tokenizer, whatever the number of threads. A .jsonl file gives the \"text\" of\n"
          "each line, any other file itself.\n"
          "  octavo tokenizer train data/*.txt vocab_size=8192 out=out/tok\n"
          "  octavo tokenizer train data.jsonl vocab_size=32000 out=out/tok --chat",
      .least_positionals = 1,
      .most_positionals = 1 << 20,
      .options = {{"vocab_size", "N", "number of ids, the 256 bytes and special tokens included"},
                  {"out", "DIR", "where to write"},
                  {"pattern", "NAME", "how text is cut into words: gpt2, llama3 (default), qwen2, o200k"},
                  {"special_tokens", "A,B,…",
                   "special tokens (default <|endoftext|>); the first begins and ends texts"},
                  {"min_frequency", "N", "pairs that occur less often are not merged (default 2)"},
                  {"chat", "", "add <|im_start|> and <|im_end|> and a ChatML chat template"},
                  {"force", "", "replace DIR"}},
      .run = Run};
}

}  // namespace octavo
