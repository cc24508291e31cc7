// Finds out what a file or a directory holds and loads the tokenizer in it, with what tokenizer_config.json adds.
#include "octavo/text/tokenizer_files.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "octavo/base/error.h"
#include "octavo/base/mapped_file.h"
#include "octavo/text/gguf_vocab_file.h"
#include "octavo/text/llama2c_vocab.h"
#include "octavo/text/sentencepiece.h"
#include "octavo/text/tiktoken.h"
#include "octavo/text/tokenizer.h"
#include "octavo/text/tokenizer_json.h"
#include "octavo/text/tokenizer_vocab.h"

namespace octavo::text {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxFile = size_t{256} << 20;
constexpr size_t kMaxConfig = size_t{16} << 20;

// Looks at the first bytes only: such a file may be larger than memory.
bool StartsLikeGguf(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  char magic[4];
  return file != nullptr && std::fread(magic, 1, sizeof magic, file.get()) == sizeof magic &&
         LooksLikeGguf({magic, sizeof magic});
}

// "bos_token": "<s>" or {"content": "<s>", …}.
std::string RoleToken(const JsonValue& config, std::string_view key, std::string_view where) {
  const JsonValue* value = config.Find(key);
  if (value == nullptr) return "";
  return value->IsObject() ? value->StringOr("content", "", where) : value->String(where);
}

void ReadRoles(const JsonValue& config, std::string_view where, Tokenizer& tokenizer) {
  RoleIds roles = tokenizer.roles();
  const auto read = [&](std::string_view key, std::optional<int32_t>& id) {
    const std::string token = RoleToken(config, key, where);
    if (token.empty()) return;
    if (const std::optional<int32_t> found = tokenizer.Find(token)) id = found;
  };
  read("bos_token", roles.bos);
  read("eos_token", roles.eos);
  read("unk_token", roles.unknown);
  read("pad_token", roles.pad);
  tokenizer.set_roles(roles);
}

// What the file beside a .model says: which tokens go around the text, and tokens that the model does not have.
SentencePieceOptions ReadSentencePieceOptions(const JsonValue& config, std::string_view where) {
  SentencePieceOptions options;
  options.add_bos = config.BoolOr("add_bos_token", options.add_bos, where);
  options.add_eos = config.BoolOr("add_eos_token", options.add_eos, where);
  const JsonValue* added = config.Find("added_tokens_decoder");
  if (added == nullptr) return options;
  for (const auto& [key, value] : added->Object(where)) {
    AddedToken token;
    const auto [end, problem] = std::from_chars(key.data(), key.data() + key.size(), token.id);
    if (problem != std::errc() || end != key.data() + key.size() || token.id < 0 || token.id >= kMaxVocabulary) {
      ThrowFile("{}: added_tokens_decoder: '{}' is no token id", where, key.substr(0, 30));
    }
    token.content = token.pattern = value.At("content", where).String(where);
    token.special = value.BoolOr("special", false, where);
    token.lstrip = value.BoolOr("lstrip", false, where);
    token.rstrip = value.BoolOr("rstrip", false, where);
    token.single_word = value.BoolOr("single_word", false, where);
    if (!token.content.empty()) options.added.push_back(std::move(token));
  }
  return options;
}

}  // namespace

std::optional<fs::path> FindTokenizerFile(const fs::path& folder) {
  std::error_code ignored;
  for (std::string_view name : {"tokenizer.json", "tokenizer.model"}) {
    if (fs::is_regular_file(folder / name, ignored)) return folder / name;
  }
  std::vector<fs::path> ranks;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.path().extension() == ".tiktoken") ranks.push_back(entry.path());
  }
  std::sort(ranks.begin(), ranks.end());
  if (!ranks.empty()) return ranks[0];
  if (fs::is_regular_file(folder / "tiktoken.model", ignored)) return folder / "tiktoken.model";
  // llama2.c: tokenizer.bin, or tok512.bin and the like.
  std::vector<fs::path> pieces;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.path().extension() == ".bin" && entry.path().filename().string().starts_with("tok")) {
      pieces.push_back(entry.path());
    }
  }
  if (pieces.size() == 1) return pieces[0];
  std::vector<fs::path> models;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.path().extension() == ".gguf") models.push_back(entry.path());
  }
  if (models.size() == 1) return models[0];
  return std::nullopt;
}

std::unique_ptr<Tokenizer> LoadTokenizer(const std::string& path) {
  std::error_code ignored;
  if (path == "bytes" && !fs::exists(path, ignored)) return MakeByteTokenizer();
  fs::path file(path);
  if (fs::is_directory(file, ignored)) {
    const std::optional<fs::path> found = FindTokenizerFile(file);
    if (!found) {
      throw Error(ErrorCode::kFile, fmt::format("no tokenizer.json, tokenizer.model or tiktoken file beside {}", path),
                  "tokenizer_path=…");
    }
    file = *found;
  }
  const std::string name = file.string();
  if (StartsLikeGguf(name)) {
    const MappedFile mapped(file);
    const auto all = mapped.bytes();
    return MakeGgufTokenizer(ReadGgufVocabulary({reinterpret_cast<const char*>(all.data()), all.size()}, name), name);
  }
  const std::string bytes = ReadWholeFile(name, kMaxFile);
  std::optional<JsonValue> config;
  const fs::path config_path = file.parent_path() / "tokenizer_config.json";
  if (fs::is_regular_file(config_path, ignored)) {
    config = ParseJson(ReadWholeFile(config_path.string(), kMaxConfig), config_path.string());
  }
  std::unique_ptr<Tokenizer> tokenizer;
  if (file.extension() == ".json") {
    tokenizer = ParseTokenizerJson(bytes, name);
  } else if (file.extension() == ".bin") {
    tokenizer = MakeGgufTokenizer(ParseLlama2cVocabulary(bytes, name), name);
  } else if (LooksLikeTiktoken(bytes)) {
    tokenizer = ParseTiktoken(bytes, name);
  } else {
    tokenizer = ParseSentencePiece(
        bytes, name, config ? ReadSentencePieceOptions(*config, config_path.string()) : SentencePieceOptions{});
  }
  if (config) ReadRoles(*config, config_path.string(), *tokenizer);
  return tokenizer;
}

}  // namespace octavo::text
