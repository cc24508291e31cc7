#include "octavo/weights/carried.h"

#include <algorithm>
#include <fstream>
#include <memory>

#include "octavo/base/error.h"
#include "octavo/checkpoint/gguf.h"
#include "octavo/checkpoint/sharded.h"
#include "octavo/config/settings.h"
#include "octavo/text/tokenizer_files.h"

namespace octavo::weights {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostCarriedBytes = uint64_t{256} << 20;

constexpr const char* kCarried[] = {
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "tokenizer.tiktoken",
    "tokenizer.gguf",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
};

template <typename T>
void Append(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void AppendText(std::string& out, std::string_view text) {
  Append<uint64_t>(out, text.size());
  out += text;
}

// The tokenizer of a GGUF file as a file of its own: its keys and no tensors.
std::string TokenizerOf(const GgufContent& content) {
  std::string keys;
  uint64_t count = 0;
  for (const auto& [name, value] : content.values()) {
    if (!name.starts_with("tokenizer.") && name != "general.architecture") continue;
    ++count;
    AppendText(keys, name);
    if (value.is_array) {
      Append(keys, static_cast<uint32_t>(GgufValueType::kArray));
      Append(keys, static_cast<uint32_t>(value.type));
      Append<uint64_t>(keys, value.count);
    } else {
      Append(keys, static_cast<uint32_t>(value.type));
    }
    keys.append(reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size());
  }
  std::string file = "GGUF";
  Append<uint32_t>(file, 3);
  Append<uint64_t>(file, 0);
  Append<uint64_t>(file, count);
  return file + keys;
}

bool IsGguf(const fs::path& file) {
  char magic[4] = {};
  std::ifstream(file, std::ios::binary).read(magic, sizeof magic);
  return std::string_view(magic, sizeof magic) == "GGUF";
}

// A tokenizer file under the name by which it is found in a folder of its own.
CarriedFile CarriedTokenizer(const fs::path& file) {
  if (IsGguf(file)) {
    const auto opened = std::make_shared<const GgufFile>(file);
    return {"tokenizer.gguf", {}, [opened] { return TokenizerOf(opened->content()); }};
  }
  const fs::path extension = file.extension();
  const bool named = extension == ".json" || extension == ".tiktoken" || extension == ".bin";
  return CarriedFrom("tokenizer" + (named ? extension.string() : ".model"), file);
}

// A tokenizer file and what is read beside it: its special tokens and its chat template.
std::vector<CarriedFile> CarriedWith(const fs::path& file) {
  std::vector<CarriedFile> files = {CarriedTokenizer(file)};
  if (files[0].path.empty()) return files;  // a GGUF file says all of that itself
  for (const char* name :
       {"tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja", "chat_template.json"}) {
    std::error_code error;
    const fs::path beside = file.parent_path() / name;
    if (fs::is_regular_file(beside, error)) files.push_back(CarriedFrom(name, beside));
  }
  return files;
}

// The run's settings with another tokenizer; without settings there is nowhere to say it.
void SetTokenizerPath(std::string& config, std::string_view path) {
  if (config.empty()) return;
  if (!config.ends_with('\n')) config += '\n';
  const std::string line = fmt::format("tokenizer_path: {}\n", path);
  constexpr std::string_view kKey = "tokenizer_path:";
  for (size_t begin = 0; begin < config.size(); begin = config.find('\n', begin) + 1) {
    if (!std::string_view(config).substr(begin).starts_with(kKey)) continue;
    config.replace(begin, config.find('\n', begin) + 1 - begin, line);
    return;
  }
  config += line;
}

// The generation config is the model's, whatever its tokenizer is.
void ReplaceCarried(StoredModel& model, std::vector<CarriedFile> files) {
  const auto is_generation = [](const CarriedFile& file) { return file.name == "generation_config.json"; };
  const auto own = std::ranges::find_if(model.carried, is_generation);
  if (own != model.carried.end()) {
    std::erase_if(files, is_generation);
    files.push_back(*own);
  }
  model.carried = std::move(files);
}

}  // namespace

CarriedFile CarriedFrom(std::string name, const fs::path& path) {
  return {std::move(name), path, [path] { return ReadSmallFile(path, kMostCarriedBytes); }};
}

std::vector<CarriedFile> CarriedIn(const fs::path& folder) {
  std::vector<CarriedFile> files;
  for (const char* name : kCarried) {
    std::error_code error;
    if (fs::is_regular_file(folder / name, error)) files.push_back(CarriedFrom(name, folder / name));
  }
  const bool has = std::ranges::any_of(files, [](const CarriedFile& file) { return IsTokenizerName(file.name); });
  if (has) return files;
  if (const auto found = text::FindTokenizerFile(folder)) files.push_back(CarriedTokenizer(*found));
  return files;
}

bool UseTokenizer(StoredModel& model, const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    const auto found = text::FindTokenizerFile(path);
    if (!found) return false;
    ReplaceCarried(model, CarriedIn(path));
    model.tokenizer = path;
  } else if (fs::is_regular_file(path, error)) {
    ReplaceCarried(model, CarriedWith(path));
    model.tokenizer = path;
  } else if (path == "bytes") {
    ReplaceCarried(model, {});
    model.tokenizer = path;
    SetTokenizerPath(model.config_text, "bytes");
  } else {
    return false;
  }
  return true;
}

bool UseTokenizerBeside(StoredModel& model) {
  const fs::path folder = model.path.has_parent_path() ? model.path.parent_path() : fs::path(".");
  const auto found = text::FindTokenizerFile(folder);
  return found && found->filename() != model.path.filename() && UseTokenizer(model, *found);
}

bool IsCarriedName(std::string_view name) {
  return IsTokenizerName(name) || std::ranges::find(kCarried, name) != std::end(kCarried);
}

bool IsTokenizerName(std::string_view name) {
  constexpr std::string_view kNames[] = {"tokenizer.json", "tokenizer.model", "tokenizer.tiktoken", "tokenizer.gguf",
                                         "tokenizer.bin"};
  return std::ranges::find(kNames, name) != std::end(kNames);
}

bool CarriesTokenizer(const StoredModel& model) {
  const auto is_tokenizer = [](const CarriedFile& file) { return IsTokenizerName(file.name); };
  if (std::ranges::any_of(model.carried, is_tokenizer)) return true;
  return model.tokenizer == "bytes" && !model.config_text.empty() &&
         Settings::FromText(model.config_text, "config of " + model.path.string()).Text("tokenizer_path") == "bytes";
}

}  // namespace octavo::weights
