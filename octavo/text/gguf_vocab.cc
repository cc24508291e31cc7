#include "octavo/text/gguf_vocab.h"

#include <algorithm>
#include <cmath>

#include "octavo/base/error.h"
#include "octavo/text/bpe.h"
#include "octavo/text/gguf_vocab_pre.h"
#include "octavo/text/sentencepiece.h"
#include "octavo/text/tokenizer_pipeline.h"
#include "octavo/text/unicode.h"

namespace octavo::text {
namespace {

PieceType TypeOf(const GgufVocabulary& gguf, size_t id) {
  return gguf.types.empty() ? PieceType::kNormal : static_cast<PieceType>(gguf.types[id]);
}

std::optional<int32_t> CheckedId(const std::optional<int64_t>& id, const GgufVocabulary& gguf, std::string_view name,
                                 std::string_view role) {
  // Files write -1 or 2^32 - 1 for "none".
  if (!id || *id < 0 || *id == UINT32_MAX) return std::nullopt;
  if (*id >= static_cast<int64_t>(gguf.tokens.size())) {
    ThrowFile("{}: {} token id {} is outside the vocabulary of {}", name, role, *id, gguf.tokens.size());
  }
  return static_cast<int32_t>(*id);
}

void CheckArrays(const GgufVocabulary& gguf, std::string_view name) {
  const size_t count = gguf.tokens.size();
  if (count == 0 || count > static_cast<size_t>(kMaxVocabulary)) {
    ThrowFile("{}: {} tokens, expected 1 to {}", name, count, kMaxVocabulary);
  }
  if (!gguf.scores.empty() && gguf.scores.size() != count) {
    ThrowFile("{}: {} tokens but {} scores", name, count, gguf.scores.size());
  }
  if (!gguf.types.empty() && gguf.types.size() != count) {
    ThrowFile("{}: {} tokens but {} token types", name, count, gguf.types.size());
  }
  for (size_t i = 0; i < count; ++i) {
    if (!IsValidUtf8(gguf.tokens[i])) ThrowFile("{}: token {} is not UTF-8", name, i);
    if (!gguf.types.empty() && (gguf.types[i] < 1 || gguf.types[i] > 6)) {
      ThrowFile("{}: token {} has type {}, expected 1 to 6", name, i, gguf.types[i]);
    }
    if (!gguf.scores.empty() && !std::isfinite(gguf.scores[i])) {
      ThrowFile("{}: token {} has no finite score", name, i);
    }
  }
}

std::vector<MergeRule> ReadMerges(const GgufVocabulary& gguf, const Vocabulary& vocabulary, std::string_view name) {
  std::vector<MergeRule> merges;
  merges.reserve(gguf.merges.size());
  for (size_t i = 0; i < gguf.merges.size(); ++i) {
    const std::string_view text = gguf.merges[i];
    const size_t space = text.find(' ', 1);
    if (space == std::string_view::npos) ThrowFile("{}: merge {} '{}' is not two tokens", name, i, text.substr(0, 60));
    const std::string_view left = text.substr(0, space);
    const std::string_view right = text.substr(space + 1);
    const auto id = [&](std::string_view token) {
      const std::optional<int32_t> found = vocabulary.Find(token);
      if (!found) ThrowFile("{}: merge {}: token '{}' is not in the vocabulary", name, i, token.substr(0, 60));
      return *found;
    };
    merges.push_back({id(left), id(right), id(std::string(left).append(right)), static_cast<int32_t>(i)});
  }
  return merges;
}

std::unique_ptr<Tokenizer> MakeByteLevel(const GgufVocabulary& gguf, const RoleIds& roles, std::string_view name) {
  const GgufPre pre = FindGgufPre(gguf.pre, name);
  PipelineParts parts;
  parts.description = fmt::format("GGUF, BPE, {}", gguf.pre.empty() ? "default" : gguf.pre);
  if (gguf.pre.empty()) {
    parts.notes.push_back("the file names no pre-tokenizer: the ids may differ from those of training");
  }
  Vocabulary vocabulary;
  vocabulary.Reserve(gguf.tokens.size(), gguf.tokens.size() * 8);
  for (size_t id = 0; id < gguf.tokens.size(); ++id) {
    vocabulary.Add(gguf.tokens[id], static_cast<int64_t>(id));
    const PieceType type = TypeOf(gguf, id);
    const bool user_defined = type == PieceType::kUserDefined;
    if (!user_defined && type != PieceType::kControl && type != PieceType::kUnknown) continue;
    if (gguf.tokens[id].empty()) continue;
    AddedToken token;
    token.id = static_cast<int32_t>(id);
    token.content = token.pattern = gguf.tokens[id];
    token.special = !user_defined;
    parts.added.push_back(std::move(token));
  }
  BpeOptions options;
  options.ignore_merges = pre.ignore_merges;
  const std::vector<MergeRule> merges = ReadMerges(gguf, vocabulary, name);
  parts.model = std::make_unique<Bpe>(std::move(vocabulary), merges, std::move(options));
  parts.pretokenizer = MakeByteLevelSplit(pre.patterns, true);
  parts.decoder = Decoder::ByteLevel();
  std::vector<std::pair<int32_t, std::string>> before;
  std::vector<std::pair<int32_t, std::string>> after;
  const auto token = [&](int32_t id) { return std::pair(id, gguf.tokens[static_cast<size_t>(id)]); };
  if (roles.bos && gguf.add_bos.value_or(pre.add_bos)) before.push_back(token(*roles.bos));
  if (roles.eos && gguf.add_eos.value_or(false)) after.push_back(token(*roles.eos));
  if (!before.empty() || !after.empty()) parts.post = PostProcessor(std::move(before), std::move(after));
  auto tokenizer = std::make_unique<Pipeline>(std::move(parts));
  tokenizer->set_roles(roles);
  return tokenizer;
}

// SentencePiece's own library runs these: the arrays are what its model files hold.
std::unique_ptr<Tokenizer> MakeFromPieces(const GgufVocabulary& gguf, const RoleIds& roles, bool bpe,
                                          std::string_view name) {
  if (gguf.scores.empty()) ThrowFile("{}: a '{}' vocabulary needs scores", name, gguf.model);
  SentencePieceModel model;
  model.kind = bpe ? SentencePieceModel::Kind::kBpe : SentencePieceModel::Kind::kUnigram;
  bool any_unknown = false;
  for (size_t id = 0; id < gguf.tokens.size(); ++id) {
    const PieceType type = TypeOf(gguf, id);
    model.pieces.push_back({gguf.tokens[id], gguf.scores[id], type});
    model.byte_fallback = model.byte_fallback || type == PieceType::kByte;
    any_unknown = any_unknown || type == PieceType::kUnknown;
  }
  if (!any_unknown) model.pieces[static_cast<size_t>(roles.unknown.value_or(0))].type = PieceType::kUnknown;
  model.unknown_id = roles.unknown.value_or(0);
  model.bos_id = roles.bos.value_or(-1);
  model.eos_id = roles.eos.value_or(-1);
  model.pad_id = roles.pad.value_or(-1);
  model.charsmap = gguf.charsmap;
  model.add_dummy_prefix = gguf.add_space_prefix.value_or(true);
  model.remove_extra_spaces = gguf.remove_extra_spaces.value_or(!bpe);
  SentencePieceOptions options;
  options.add_bos = gguf.add_bos.value_or(bpe);
  options.add_eos = gguf.add_eos.value_or(!bpe);
  auto tokenizer = MakeSentencePiece(model, name, options);
  tokenizer->set_roles(roles);
  return tokenizer;
}

}  // namespace

std::unique_ptr<Tokenizer> MakeGgufTokenizer(const GgufVocabulary& given, std::string_view name) {
  CheckArrays(given, name);
  GgufVocabulary gguf = given;
  // What a file of these kinds means when it does not say.
  const auto otherwise = [&](std::optional<int64_t>& id, int64_t value) {
    if (!id && value < static_cast<int64_t>(gguf.tokens.size())) id = value;
  };
  if (gguf.model == "llama") {
    otherwise(gguf.unknown_id, 0);
    otherwise(gguf.bos_id, 1);
    otherwise(gguf.eos_id, 2);
  } else if (gguf.model == "t5") {
    otherwise(gguf.pad_id, 0);
    otherwise(gguf.eos_id, 1);
    otherwise(gguf.unknown_id, 2);
  }
  const RoleIds roles = {CheckedId(gguf.bos_id, gguf, name, "BOS"), CheckedId(gguf.eos_id, gguf, name, "EOS"),
                         CheckedId(gguf.unknown_id, gguf, name, "unknown"),
                         CheckedId(gguf.pad_id, gguf, name, "padding")};
  if (gguf.model == "gpt2") return MakeByteLevel(gguf, roles, name);
  if (gguf.model == "llama") return MakeFromPieces(gguf, roles, true, name);
  if (gguf.model == "t5") return MakeFromPieces(gguf, roles, false, name);
  throw Error(ErrorCode::kFile,
              fmt::format("{}: tokenizer model '{}' is not supported", name, gguf.model.substr(0, 60)),
              "known: gpt2 llama t5");
}

}  // namespace octavo::text
