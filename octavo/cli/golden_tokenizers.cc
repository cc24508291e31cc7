// Reference data of tokenizers: a folder with `cases.json` and the tokenizer itself (tokenizer.json, tokenizer.model, a
// tiktoken file). A case is a text or raw bytes with the ids, tokens, offsets and decoded text that the reference
// library gave, or an error; all of them must be equal.
#include <fmt/ranges.h>

#include <string_view>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/cli/golden.h"
#include "octavo/text/tokenizer.h"
#include "octavo/text/tokenizer_json.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;
using text::JsonValue;
using text::Span;
using text::Tokenizer;

constexpr size_t kMaxIndex = size_t{256} << 20;

bool IsTokenizerFolder(const fs::path& folder) {
  if (!fs::is_regular_file(folder / "cases.json")) return false;
  if (fs::is_regular_file(folder / "tokenizer.json") || fs::is_regular_file(folder / "tokenizer.model")) return true;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".tiktoken") return true;
  }
  return false;
}

std::string Quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text.substr(0, 80)) out += c == '\n' ? std::string("\\n") : std::string(1, c);
  return out + "\"";
}

// The first place where two lists part.
template <typename T, typename Show>
void Compare(std::string_view what, const std::vector<T>& expected, const std::vector<T>& actual, Show show,
             std::vector<std::string>& problems) {
  if (expected == actual) return;
  size_t at = 0;
  while (at < expected.size() && at < actual.size() && expected[at] == actual[at]) ++at;
  const auto one = [&](const std::vector<T>& list) {
    return at < list.size() ? show(list[at]) : std::string("the end");
  };
  problems.push_back(fmt::format("{}: {} expected, {} found; first difference at {}: expected {}, found {}", what,
                                 expected.size(), actual.size(), at, one(expected), one(actual)));
}

std::string ShowId(int32_t id) { return fmt::format("{}", id); }
std::string ShowSpan(const Span& span) { return fmt::format("[{}, {}]", span.begin, span.end); }

std::vector<int32_t> ReadIds(const JsonValue& list, std::string_view where) {
  std::vector<int32_t> ids;
  for (const JsonValue& id : list.Items(where))
    ids.push_back(static_cast<int32_t>(id.Int(where, INT32_MIN, INT32_MAX)));
  return ids;
}

std::vector<std::string> ReadTexts(const JsonValue& list, std::string_view where) {
  std::vector<std::string> texts;
  for (const JsonValue& one : list.Items(where)) texts.push_back(one.String(where));
  return texts;
}

std::vector<Span> ReadSpans(const JsonValue& list, std::string_view where) {
  std::vector<Span> spans;
  for (const JsonValue& pair : list.Items(where)) {
    const std::vector<int32_t> ends = ReadIds(pair, where);
    if (ends.size() != 2 || ends[0] < 0 || ends[1] < 0) ThrowFile("{}: expected [begin, end]", where);
    spans.push_back({static_cast<uint32_t>(ends[0]), static_cast<uint32_t>(ends[1])});
  }
  return spans;
}

std::string ReadHex(std::string_view hex, std::string_view where) {
  const auto digit = [&](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    ThrowFile("{}: not hexadecimal", where);
  };
  if (hex.size() % 2 != 0) ThrowFile("{}: not hexadecimal", where);
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) bytes.push_back(static_cast<char>(digit(hex[i]) << 4 | digit(hex[i + 1])));
  return bytes;
}

class TokenizerFolder {
 public:
  explicit TokenizerFolder(const fs::path& folder)
      : path_((folder / "cases.json").string()),
        index_(text::ParseJson(text::ReadWholeFile(path_, kMaxIndex), path_)),
        tokenizer_(text::LoadTokenizer(folder.string())),
        // SentencePiece's library never reads control pieces out of text, the others' do.
        parse_special_(!tokenizer_->description().starts_with("SentencePiece")) {}

  GoldenFolderResult Run() const {
    GoldenFolderResult result;
    const auto count = [&](std::string name, const std::vector<std::string>& problems) {
      if (problems.empty()) {
        ++result.passed;
      } else {
        result.failures.push_back({std::move(name), fmt::format("{}", fmt::join(problems, "\n  "))});
      }
    };
    for (const auto& entry : index_.Object(path_)) {
      const auto& key = entry.first;
      const auto& value = entry.second;
      if (key == "cases" || key == "decode_cases") {
        size_t number = 0;
        for (const JsonValue& one : value.Items(path_)) {
          count(fmt::format("{}[{}]", key, number++), Guarded([&](auto& problems) { CheckCase(one, problems); }));
        }
      } else if (key == "vocab_size" || key == "pieces") {
        count(key, Guarded([&](auto& problems) { CheckVocabulary(key, value, problems); }));
      }
    }
    if (result.passed == 0 && result.failures.empty()) ThrowFile("{}: no cases", path_);
    return result;
  }

 private:
  template <typename Action>
  static std::vector<std::string> Guarded(Action action) {
    std::vector<std::string> problems;
    try {
      action(problems);
    } catch (const std::exception& error) {
      problems.emplace_back(error.what());
    }
    return problems;
  }

  void CheckVocabulary(std::string_view key, const JsonValue& value, std::vector<std::string>& problems) const {
    if (key == "vocab_size") {
      const int64_t expected = value.Int(path_, 0, INT32_MAX);
      if (tokenizer_->vocabulary_size() != expected) {
        problems.push_back(fmt::format("expected {} ids, found {}", expected, tokenizer_->vocabulary_size()));
      }
      return;
    }
    int32_t id = 0;
    for (const JsonValue& piece : value.Items(path_)) {  // [text, score, flags]; flags 1 control, 2 unknown, 4 byte
      const JsonValue::Array& fields = piece.Items(path_);
      if (fields.size() != 3) ThrowFile("{}: a piece is not [text, score, flags]", path_);
      const std::string& expected = fields[0].String(path_);
      if (tokenizer_->Token(id) != expected)
        problems.push_back(fmt::format("piece {} is not {}", id, Quoted(expected)));
      if (tokenizer_->IsSpecial(id) != ((fields[2].Int(path_, 0, 7) & 3) != 0)) {
        problems.push_back(fmt::format("piece {}: special or not differs", id));
      }
      ++id;
    }
  }

  void CheckCase(const JsonValue& one, std::vector<std::string>& problems) const {
    const JsonValue* raw = one.Find("raw_hex");
    const JsonValue* written = one.Find("text");
    if (one.Find("error") != nullptr) {
      CheckError(one, problems);
      return;
    }
    if (raw != nullptr || written != nullptr) {
      CheckEncode(one, raw != nullptr ? ReadHex(raw->String(path_), path_) : written->String(path_), problems);
    }
    const std::vector<int32_t> ids = ReadIds(one.At("ids", path_), path_);
    for (const auto& [key, value] : one.Object(path_)) {
      if (key == "decoded" || key == "decoded_skip_special") {
        const std::string found = tokenizer_->Decode(ids, {.skip_special = key != "decoded"});
        if (found != value.String(path_)) {
          problems.push_back(fmt::format("{}: expected {}, found {}", key, Quoted(value.String(path_)), Quoted(found)));
        }
      } else if (!IsKnown(key)) {
        problems.push_back(fmt::format("'{}' is not known", key));
      }
    }
  }

  // Ids in both ways of encoding, and what only the detailed one gives.
  void CheckEncode(const JsonValue& one, const std::string& input, std::vector<std::string>& problems) const {
    const text::EncodeOptions options{.add_special = false, .parse_special = parse_special_};
    const std::vector<int32_t> ids = ReadIds(one.At("ids", path_), path_);
    const text::Encoding detail = tokenizer_->EncodeWithOffsets(input, options);
    Compare("ids", ids, tokenizer_->Encode(input, options), ShowId, problems);
    Compare("ids with offsets", ids, detail.ids, ShowId, problems);
    for (const char* key : {"tokens", "pieces"}) {
      if (const JsonValue* list = one.Find(key)) {
        Compare(key, ReadTexts(*list, path_), detail.tokens, Quoted, problems);
      }
    }
    if (const JsonValue* list = one.Find("offsets")) {
      Compare("offsets", ReadSpans(*list, path_), detail.chars, ShowSpan, problems);
    }
    if (const JsonValue* list = one.Find("byte_offsets")) {
      Compare("byte_offsets", ReadSpans(*list, path_), detail.bytes, ShowSpan, problems);
    }
    if (const JsonValue* list = one.Find("ids_with_special")) {
      const std::vector<int32_t> around = ReadIds(*list, path_);
      const text::EncodeOptions with{.add_special = true, .parse_special = parse_special_};
      Compare("ids_with_special", around, tokenizer_->Encode(input, with), ShowId, problems);
      Compare("ids_with_special with offsets", around, tokenizer_->EncodeWithOffsets(input, with).ids, ShowId,
              problems);
    }
  }

  void CheckError(const JsonValue& one, std::vector<std::string>& problems) const {
    try {
      if (const JsonValue* written = one.Find("text")) {
        tokenizer_->Encode(written->String(path_), {.parse_special = parse_special_});
      } else {
        tokenizer_->Decode(ReadIds(one.At("ids", path_), path_));
      }
      problems.emplace_back("no error, where the reference raised one");
    } catch (const Error&) {
    }
  }

  static bool IsKnown(std::string_view key) {
    for (std::string_view known : {"text", "raw_hex", "note", "ids", "tokens", "pieces", "offsets", "byte_offsets",
                                   "ids_with_special", "name"}) {
      if (key == known) return true;
    }
    return false;
  }

  std::string path_;
  JsonValue index_;
  std::unique_ptr<Tokenizer> tokenizer_;
  bool parse_special_;
};

GoldenFolderResult RunTokenizerFolder(const fs::path& folder, ThreadPool&) { return TokenizerFolder(folder).Run(); }

}  // namespace

GoldenFolderKind TokenizerFolderKind() { return {"tokenizers", IsTokenizerFolder, RunTokenizerFolder}; }

}  // namespace octavo
