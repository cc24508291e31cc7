// Builds the pipeline that a tokenizer.json describes.
#include <algorithm>
#include <unordered_map>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/text/tokenizer.h"
#include "octavo/text/tokenizer_json.h"
#include "octavo/text/tokenizer_pipeline.h"
#include "octavo/text/unigram.h"
#include "octavo/text/wordpiece.h"

namespace octavo::text {
namespace {

Vocabulary ReadVocabulary(const JsonValue& model, std::string_view where) {
  const JsonValue::Members& members = model.At("vocab", where).Object(fmt::format("{}.vocab", where));
  Vocabulary vocabulary;
  vocabulary.Reserve(members.size(), members.size() * 8);
  for (const auto& [token, id] : members) {
    vocabulary.Add(token, id.Int(fmt::format("{}.vocab['{}']", where, token.substr(0, 60)), 0, kMaxVocabulary - 1));
  }
  return vocabulary;
}

// "a b" or ["a", "b"].
std::pair<std::string_view, std::string_view> ReadMerge(const JsonValue& merge, size_t index, std::string_view where) {
  if (merge.IsString()) {
    const std::string& text = merge.String(where);
    const size_t space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
      ThrowFile("{}.merges[{}]: expected two tokens with one space between, found '{}'", where, index,
                text.substr(0, 60));
    }
    return {std::string_view(text).substr(0, space), std::string_view(text).substr(space + 1)};
  }
  if (!merge.IsArray() || merge.Items(where).size() != 2) ThrowFile("{}.merges[{}]: expected two tokens", where, index);
  return {merge.Items(where)[0].String(where), merge.Items(where)[1].String(where)};
}

std::vector<MergeRule> ReadMerges(const JsonValue& model, const Vocabulary& vocabulary, std::string_view prefix,
                                  std::string_view where) {
  const JsonValue::Array& items = model.At("merges", where).Items(fmt::format("{}.merges", where));
  std::vector<MergeRule> merges;
  merges.reserve(items.size());
  std::string joined;
  for (size_t i = 0; i < items.size(); ++i) {
    // Older files start with a version line.
    if (items[i].IsString() && items[i].String(where).starts_with("#version")) continue;
    const auto [left, right] = ReadMerge(items[i], i, where);
    joined = left;
    joined += right.substr(std::min(right.size(), prefix.size()));
    const auto id = [&](std::string_view token) {
      const std::optional<int32_t> found = vocabulary.Find(token);
      if (!found) ThrowFile("{}.merges[{}]: token '{}' is not in the vocabulary", where, i, token.substr(0, 60));
      return *found;
    };
    merges.push_back({id(left), id(right), id(joined), static_cast<int32_t>(merges.size())});
  }
  return merges;
}

std::unique_ptr<Model> ReadBpe(const JsonValue& model, std::string_view where, std::vector<std::string>& notes) {
  BpeOptions options;
  if (const JsonValue* unknown = model.Find("unk_token")) options.unknown_token = unknown->String(where);
  options.continuing_prefix = model.StringOr("continuing_subword_prefix", "", where);
  options.end_suffix = model.StringOr("end_of_word_suffix", "", where);
  options.fuse_unknown = model.BoolOr("fuse_unk", false, where);
  options.byte_fallback = model.BoolOr("byte_fallback", false, where);
  options.ignore_merges = model.BoolOr("ignore_merges", false, where);
  if (const JsonValue* dropout = model.Find("dropout"); dropout != nullptr && dropout->Number(where) != 0) {
    notes.push_back("dropout of the BPE model is not applied: the same text always gives the same ids");
  }
  Vocabulary vocabulary = ReadVocabulary(model, where);
  const std::vector<MergeRule> merges = ReadMerges(model, vocabulary, options.continuing_prefix, where);
  return std::make_unique<Bpe>(std::move(vocabulary), merges, std::move(options));
}

std::unique_ptr<Model> ReadUnigram(const JsonValue& model, std::string_view where) {
  std::vector<std::pair<std::string, double>> pieces;
  const std::string vocab = fmt::format("{}.vocab", where);
  for (const JsonValue& item : model.At("vocab", where).Items(vocab)) {
    const JsonValue::Array& pair = item.Items(vocab);
    if (pair.size() != 2) ThrowFile("{}[{}]: expected [piece, score]", vocab, pieces.size());
    pieces.emplace_back(pair[0].String(vocab), pair[1].Number(vocab));
    if (pieces.size() > static_cast<size_t>(kMaxVocabulary))
      ThrowFile("{}: more than {} pieces", vocab, kMaxVocabulary);
  }
  std::optional<int64_t> unknown;
  if (const JsonValue* id = model.Find("unk_id")) unknown = id->Int(where, 0, kMaxVocabulary - 1);
  return std::make_unique<Unigram>(pieces, unknown, model.BoolOr("byte_fallback", false, where));
}

// The kind of a model, from "type" or, in files older than that key, from what is there.
std::string ModelKind(const JsonValue& model, std::string_view where) {
  if (model.Find("type") != nullptr) return model.StringOr("type", "", where);
  if (model.Find("merges") != nullptr) return "BPE";
  const JsonValue* vocab = model.Find("vocab");
  if (vocab != nullptr && vocab->IsArray()) return "Unigram";
  if (model.Find("max_input_chars_per_word") != nullptr) return "WordPiece";
  return "WordLevel";
}

std::unique_ptr<Model> ReadModel(const JsonValue& model, std::string_view where, PipelineParts& parts) {
  const std::string kind = ModelKind(model, where);
  parts.description = fmt::format("tokenizer.json, {}", kind);
  if (kind == "BPE") return ReadBpe(model, where, parts.notes);
  if (kind == "Unigram") return ReadUnigram(model, where);
  if (kind == "WordPiece") {
    const JsonValue* most = model.Find("max_input_chars_per_word");
    return std::make_unique<WordPiece>(ReadVocabulary(model, where), model.StringOr("unk_token", "[UNK]", where),
                                       model.StringOr("continuing_subword_prefix", "##", where),
                                       most == nullptr ? 100 : most->Int(where, 1, 1 << 20));
  }
  if (kind == "WordLevel") {
    return std::make_unique<WordLevel>(ReadVocabulary(model, where), model.StringOr("unk_token", "<unk>", where));
  }
  throw Error(ErrorCode::kFile, fmt::format("{}: model '{}' is not supported", where, kind.substr(0, 60)),
              "known: BPE Unigram WordPiece WordLevel");
}

// Ids are those of the model's vocabulary, or the next free ones in order, as the reference library gives them.
std::vector<AddedToken> ReadAddedTokens(const JsonValue& json, std::string_view where, const Vocabulary& vocabulary,
                                        const Normalizer* normalizer) {
  std::vector<AddedToken> tokens;
  const JsonValue* list = json.Find("added_tokens");
  if (list == nullptr) return tokens;
  auto next_id = static_cast<int64_t>(vocabulary.count());
  Vocabulary seen;
  std::unordered_map<int32_t, size_t> by_id;
  RegexScratch scratch;
  for (const JsonValue& item : list->Items(where)) {
    AddedToken token;
    token.content = item.At("content", where).String(where);
    if (token.content.empty()) continue;
    token.special = item.BoolOr("special", false, where);
    token.single_word = item.BoolOr("single_word", false, where);
    token.lstrip = item.BoolOr("lstrip", false, where);
    token.rstrip = item.BoolOr("rstrip", false, where);
    token.normalized = item.BoolOr("normalized", !token.special, where);
    if (const std::optional<int32_t> known = vocabulary.Find(token.content)) {
      token.id = *known;
    } else if (const std::optional<int32_t> again = seen.Find(token.content)) {
      token.id = *again;
    } else {
      if (next_id >= kMaxVocabulary) ThrowFile("{}: more than {} tokens", where, kMaxVocabulary);
      token.id = static_cast<int32_t>(next_id++);
      seen.Add(token.content, token.id);
    }
    token.pattern = token.content;
    if (token.normalized && normalizer != nullptr) {
      AlignedText text(token.content, false);
      scratch.BeginRequest(token.content.size());
      normalizer->Apply(text, scratch);
      token.pattern = text.text();
    }
    // Of two with one id the last one counts.
    const auto [place, is_new] = by_id.try_emplace(token.id, tokens.size());
    if (is_new) {
      tokens.push_back(std::move(token));
    } else {
      tokens[place->second] = std::move(token);
    }
  }
  return tokens;
}

}  // namespace

std::unique_ptr<Tokenizer> ParseTokenizerJson(std::string_view text, std::string_view name) {
  const JsonValue json = ParseJson(text, name);
  if (!json.IsObject()) ThrowFile("{}: expected an object", name);
  const std::string where(name);
  if (const std::string version = json.StringOr("version", "1.0", where); version != "1.0") {
    ThrowFile("{}: version '{}' is not known, expected 1.0", where, version.substr(0, 20));
  }
  PipelineParts parts;
  parts.model = ReadModel(json.At("model", where), where + ": model", parts);
  if (const JsonValue* part = json.Find("normalizer")) parts.normalizer = MakeNormalizer(*part, where + ": normalizer");
  if (const JsonValue* part = json.Find("pre_tokenizer")) {
    parts.pretokenizer = MakePreTokenizer(*part, where + ": pre_tokenizer");
  }
  if (const JsonValue* part = json.Find("post_processor"))
    parts.post = PostProcessor(*part, where + ": post_processor");
  if (const JsonValue* part = json.Find("decoder")) parts.decoder = Decoder(*part, where + ": decoder");
  parts.added = ReadAddedTokens(json, where + ": added_tokens", parts.model->vocabulary(), parts.normalizer.get());
  for (std::string_view key : {"truncation", "padding"}) {
    if (json.Find(key) != nullptr) parts.notes.push_back(fmt::format("{} of the file is not applied", key));
  }
  return std::make_unique<Pipeline>(std::move(parts));
}

}  // namespace octavo::text
