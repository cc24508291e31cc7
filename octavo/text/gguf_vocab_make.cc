#include "octavo/text/gguf_vocab_make.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "octavo/base/error.h"
#include "octavo/base/mapped_file.h"
#include "octavo/text/chat_template_files.h"
#include "octavo/text/gguf_vocab_file.h"
#include "octavo/text/gguf_vocab_pre.h"
#include "octavo/text/llama2c_vocab.h"
#include "octavo/text/pretokenizer_scan.h"
#include "octavo/text/sentencepiece_proto.h"
#include "octavo/text/tokenizer_files.h"
#include "octavo/text/tokenizer_json.h"
#include "octavo/text/tokenizer_vocab.h"

namespace octavo::text {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxFile = size_t{256} << 20;

MadeGgufVocabulary Without(std::string why) { return {std::nullopt, std::move(why)}; }

// The patterns that cut the text, as far as they are of the forms that GGUF has names for; nullopt: of others.
std::optional<std::vector<std::string>> PatternsOf(const JsonValue* pre, bool* byte_level, const std::string& name) {
  std::vector<std::string> patterns;
  if (pre == nullptr) return patterns;
  const std::string type = pre->StringOr("type", "", name);
  if (type == "Sequence") {
    for (const JsonValue& part : pre->At("pretokenizers", name).Items(name)) {
      const auto inner = PatternsOf(&part, byte_level, name);
      if (!inner) return std::nullopt;
      patterns.insert(patterns.end(), inner->begin(), inner->end());
    }
  } else if (type == "Split") {
    const JsonValue& pattern = pre->At("pattern", name);
    const bool whole = pre->StringOr("behavior", "", name) == "Isolated" && !pre->BoolOr("invert", false, name);
    if (!whole || pattern.Find("Regex") == nullptr) return std::nullopt;
    patterns.push_back(pattern.At("Regex", name).String(name));
  } else if (type == "Digits" && pre->BoolOr("individual_digits", false, name)) {
    patterns.emplace_back(R"(\p{N})");
  } else if (type == "ByteLevel") {
    *byte_level = true;
    if (pre->BoolOr("add_prefix_space", false, name)) return std::nullopt;
    if (pre->BoolOr("use_regex", true, name)) patterns.emplace_back(kGpt2Pattern);
  } else {
    return std::nullopt;
  }
  return patterns;
}

std::string MergeText(const JsonValue& merge, const std::string& name) {
  if (!merge.IsArray()) return merge.String(name);
  const JsonValue::Array& pair = merge.Items(name);
  if (pair.size() != 2) ThrowFile("{}: a merge of {} tokens", name, pair.size());
  return pair[0].String(name) + " " + pair[1].String(name);
}

bool IsByteToken(std::string_view text) {
  return text.size() == 6 && text.starts_with("<0x") && text[5] == '>' &&
         text.substr(3, 2).find_first_not_of("0123456789ABCDEFabcdef") == std::string_view::npos;
}

// Tokens and their types from a tokenizer.json; the roles and what surrounds a text come from the tokenizer.
class JsonVocabulary {
 public:
  JsonVocabulary(const JsonValue& json, std::string name) : json_(json), name_(std::move(name)) {}

  MadeGgufVocabulary Make() {
    const JsonValue& model = json_.At("model", name_);
    if (model.StringOr("type", "BPE", name_) != "BPE") return Without("only BPE of tokenizer.json goes into GGUF");
    ReadTokens(model);
    for (const JsonValue& merge : model.At("merges", name_).Items(name_))
      made_.merges.push_back(MergeText(merge, name_));
    bool byte_level = false;
    const auto patterns = PatternsOf(json_.Find("pre_tokenizer"), &byte_level, name_);
    if (byte_level && patterns) {
      made_.model = "gpt2";
      made_.pre = FindGgufPreName(*patterns, model.BoolOr("ignore_merges", false, name_));
      if (made_.pre.empty()) return Without("GGUF has no name for its pre-tokenizer");
      return {made_, ""};
    }
    if (!model.BoolOr("byte_fallback", false, name_)) return Without("GGUF has no form for its pre-tokenizer");
    MakePieces();
    return {made_, ""};
  }

 private:
  void Put(const std::string& token, int64_t id, int32_t type) {
    if (id < 0 || id >= kMaxVocabulary) ThrowFile("{}: token id {}", name_, id);
    const auto at = static_cast<size_t>(id);
    if (at >= made_.tokens.size()) {
      made_.tokens.resize(at + 1);
      made_.types.resize(at + 1, 5);
    }
    made_.tokens[at] = token;
    made_.types[at] = type;
  }

  void ReadTokens(const JsonValue& model) {
    for (const auto& [token, id] : model.At("vocab", name_).Object(name_)) {
      Put(token, id.Int(name_, 0, kMaxVocabulary - 1), 1);
    }
    const JsonValue* added = json_.Find("added_tokens");
    if (added == nullptr) return;
    for (const JsonValue& token : added->Items(name_)) {
      Put(token.At("content", name_).String(name_), token.At("id", name_).Int(name_, 0, kMaxVocabulary - 1),
          token.BoolOr("special", false, name_) ? 3 : 4);
    }
  }

  // BPE over whole characters: what SentencePiece does. A piece's score is the rank of the merge that makes it.
  void MakePieces() {
    made_.model = "llama";
    std::map<std::string, float> ranks;
    for (size_t i = 0; i < made_.merges.size(); ++i) {
      std::string whole = made_.merges[i];
      const size_t space = whole.find(' ', 1);
      if (space != std::string::npos) whole.erase(space, 1);
      ranks.emplace(std::move(whole), -static_cast<float>(i));
    }
    made_.merges.clear();
    const std::string unknown = json_.At("model", name_).StringOr("unk_token", "<unk>", name_);
    made_.remove_extra_spaces = false;
    for (size_t id = 0; id < made_.tokens.size(); ++id) {
      const std::string& token = made_.tokens[id];
      const auto rank = ranks.find(token);
      made_.scores.push_back(rank == ranks.end() ? -static_cast<float>(kMaxVocabulary) : rank->second);
      if (IsByteToken(token)) made_.types[id] = 6;
      if (token == unknown) {
        made_.types[id] = 2;
        made_.unknown_id = static_cast<int64_t>(id);
      }
      if (made_.types[id] != 1) made_.scores.back() = 0;
    }
    const JsonValue* normalizer = json_.Find("normalizer");
    const JsonValue* pre = json_.Find("pre_tokenizer");
    made_.add_space_prefix = Prepends(normalizer) || Prepends(pre);
  }

  bool Prepends(const JsonValue* stage) const {
    if (stage == nullptr) return false;
    const std::string type = stage->StringOr("type", "", name_);
    if (type == "Prepend") return true;
    if (type == "Metaspace") return stage->StringOr("prepend_scheme", "always", name_) != "never";
    for (const char* key : {"normalizers", "pretokenizers"}) {
      const JsonValue* parts = stage->Find(key);
      if (parts == nullptr) continue;
      for (const JsonValue& part : parts->Items(name_)) {
        if (Prepends(&part)) return true;
      }
    }
    return false;
  }

  const JsonValue& json_;
  std::string name_;
  GgufVocabulary made_;
};

MadeGgufVocabulary FromPieces(const SentencePieceModel& model, const Tokenizer& tokenizer) {
  GgufVocabulary made;
  if (model.kind == SentencePieceModel::Kind::kBpe) {
    made.model = "llama";
  } else if (model.kind == SentencePieceModel::Kind::kUnigram) {
    made.model = "t5";
  } else {
    return Without("GGUF has no form for a SentencePiece model of words or characters");
  }
  for (const SentencePieceModel::Piece& piece : model.pieces) {
    made.tokens.push_back(piece.text);
    made.scores.push_back(piece.score);
    made.types.push_back(static_cast<int32_t>(piece.type));
  }
  for (auto id = static_cast<int32_t>(made.tokens.size()); id < tokenizer.vocabulary_size(); ++id) {
    made.tokens.push_back(tokenizer.Token(id).value_or(""));
    made.scores.push_back(0);
    made.types.push_back(made.tokens.back().empty() ? 5 : tokenizer.IsSpecial(id) ? 3 : 4);
  }
  made.unknown_id = model.unknown_id;
  made.charsmap = model.charsmap;
  made.add_space_prefix = model.add_dummy_prefix;
  made.remove_extra_spaces = model.remove_extra_spaces;
  return {std::move(made), ""};
}

void AddRoles(const Tokenizer& tokenizer, GgufVocabulary& made) {
  const RoleIds& roles = tokenizer.roles();
  const auto take = [](const std::optional<int32_t>& id, std::optional<int64_t>& to) {
    if (id) to = *id;
  };
  take(roles.bos, made.bos_id);
  take(roles.eos, made.eos_id);
  take(roles.unknown, made.unknown_id);
  take(roles.pad, made.pad_id);
  const std::vector<int32_t> bare = tokenizer.Encode("a"), full = tokenizer.Encode("a", {.add_special = true});
  made.add_bos = made.add_eos = false;
  const auto found = std::search(full.begin(), full.end(), bare.begin(), bare.end());
  if (full.size() == bare.size() || found == full.end()) return;
  if (found != full.begin()) made.add_bos = true, made.bos_id = full.front();
  if (full.end() - found > static_cast<std::ptrdiff_t>(bare.size())) made.add_eos = true, made.eos_id = full.back();
}

// Holes and the rows of the table past the last token.
void Fill(GgufVocabulary& made, int64_t size) {
  if (static_cast<int64_t>(made.tokens.size()) < size) {
    made.tokens.resize(static_cast<size_t>(size));
    made.types.resize(static_cast<size_t>(size), 5);
    if (!made.scores.empty()) made.scores.resize(static_cast<size_t>(size), 0);
  }
  for (size_t id = 0; id < made.tokens.size(); ++id) {
    if (made.types[id] == 5 && made.tokens[id].empty()) made.tokens[id] = fmt::format("[PAD{}]", id);
  }
}

bool SameIds(const Tokenizer& a, const Tokenizer& b, std::string_view sample) {
  for (const std::string_view text :
       {sample, std::string_view("  x = 12345;\n\n\tna\xC3\xAFve \xE6\xBC\xA2 \xF0\x9F\x99\x82!"),
        std::string_view("a"), std::string_view(" a  b")}) {
    for (const bool special : {false, true}) {
      const EncodeOptions options{.add_special = special, .parse_special = false};
      if (a.Encode(text, options) != b.Encode(text, options)) return false;
    }
  }
  return true;
}

std::string TemplateOf(const fs::path& path) {
  const ChatTemplateFiles files = ReadChatTemplateFiles(fs::is_directory(path)   ? path
                                                        : path.has_parent_path() ? path.parent_path()
                                                                                 : fs::path("."));
  return files.templates.contains("default") ? files.templates.at("default") : "";
}

}  // namespace

MadeGgufVocabulary MakeGgufVocabulary(const std::string& path, int64_t vocabulary_size, std::string_view sample) {
  fs::path file(path);
  if (fs::is_directory(file)) file = FindTokenizerFile(file).value_or(file);
  if (!fs::is_regular_file(file)) return Without("it brings no tokenizer.json or tokenizer.model");
  const std::string name = file.string();
  {
    const MappedFile mapped(file);
    const std::string_view bytes(reinterpret_cast<const char*>(mapped.bytes().data()), mapped.bytes().size());
    if (LooksLikeGguf(bytes)) return {ReadGgufVocabulary(bytes, name), ""};
  }
  const std::unique_ptr<Tokenizer> tokenizer = LoadTokenizer(path);
  const std::string bytes = ReadWholeFile(name, kMaxFile);
  MadeGgufVocabulary made;
  if (file.extension() == ".json") {
    const JsonValue json = ParseJson(bytes, name);
    made = JsonVocabulary(json, name).Make();
  } else if (file.extension() == ".bin") {
    made.vocabulary = ParseLlama2cVocabulary(bytes, name);
  } else if (tokenizer->description().find("SentencePiece") != std::string::npos) {
    made = FromPieces(ReadSentencePieceModel(bytes, name), *tokenizer);
  } else {
    return Without(fmt::format("GGUF has no form for {}", tokenizer->description()));
  }
  if (!made.vocabulary) return made;
  AddRoles(*tokenizer, *made.vocabulary);
  Fill(*made.vocabulary, vocabulary_size);
  made.vocabulary->chat_template = TemplateOf(path);
  if (!SameIds(*tokenizer, *MakeGgufTokenizer(*made.vocabulary, name), sample)) {
    return Without("in the form of GGUF it would give other ids");
  }
  return made;
}

}  // namespace octavo::text
