#include "octavo/text/postprocess.h"

#include <algorithm>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/text/tokenizer_bytechars.h"
#include "octavo/text/tokenizer_vocab.h"
#include "octavo/text/unicode.h"

namespace octavo::text {
namespace {

// Takes the white space at both ends of a byte-level token out of its offsets.
void TrimOffsets(RawEncoding& encoding, bool keeps_prefix_space) {
  const auto is_space = [](char32_t c) { return c == ByteChars256()[' '] || IsSpace(c); };
  for (size_t i = 0; i < encoding.tokens.size(); ++i) {
    std::vector<char32_t> chars;
    ForEachChar(encoding.tokens[i], [&](char32_t c) { chars.push_back(c); });
    auto leading = static_cast<uint32_t>(std::find_if_not(chars.begin(), chars.end(), is_space) - chars.begin());
    const auto trailing =
        static_cast<uint32_t>(std::find_if_not(chars.rbegin(), chars.rend(), is_space) - chars.rbegin());
    Span& span = encoding.chars[i];
    if (leading > 0) {
      // The one space in front may be ours.
      if ((i == 0 || span.begin == 0) && keeps_prefix_space && leading == 1) leading = 0;
      span.begin = std::min(span.begin + leading, span.end);
    }
    if (trailing > 0 && span.end >= trailing) span.end = std::max(span.end - trailing, span.begin);
  }
}

}  // namespace

PostProcessor::PostProcessor(const JsonValue& json, std::string_view where) { Read(json, where); }

PostProcessor::PostProcessor(std::vector<std::pair<int32_t, std::string>> before,
                             std::vector<std::pair<int32_t, std::string>> after) {
  Step step;
  const auto add = [&](const std::vector<std::pair<int32_t, std::string>>& list) {
    for (const auto& [id, token] : list) step.pieces.push_back({false, {id}, {token}});
  };
  add(before);
  step.pieces.push_back({true, {}, {}});
  add(after);
  steps_.push_back(std::move(step));
}

void PostProcessor::Read(const JsonValue& json, std::string_view where) {
  const std::string& type = json.At("type", where).String(where);
  if (type == "Sequence") {
    size_t index = 0;
    for (const JsonValue& part : json.At("processors", where).Items(where)) {
      Read(part, fmt::format("{}.processors[{}]", where, index++));
    }
  } else if (type == "ByteLevel") {
    if (json.BoolOr("trim_offsets", true, where)) {
      steps_.push_back({true, json.BoolOr("add_prefix_space", true, where), {}});
    }
  } else if (type == "TemplateProcessing") {
    ReadTemplate(json, where);
  } else if (type == "BertProcessing") {
    ReadPair(json, where);
  } else if (type == "RobertaProcessing") {
    if (json.BoolOr("trim_offsets", true, where)) {
      steps_.push_back({true, json.BoolOr("add_prefix_space", true, where), {}});
    }
    ReadPair(json, where);
  } else {
    throw Error(ErrorCode::kFile, fmt::format("{}: post-processor '{}' is not supported", where, type.substr(0, 60)),
                "known: Sequence ByteLevel TemplateProcessing BertProcessing RobertaProcessing");
  }
}

void PostProcessor::ReadTemplate(const JsonValue& json, std::string_view where) {
  Step step;
  const JsonValue* special = json.Find("special_tokens");
  for (const JsonValue& item : json.At("single", where).Items(where)) {
    if (item.Find("Sequence") != nullptr) {
      if (item.At("Sequence", where).StringOr("id", "A", where) == "A") step.pieces.push_back({true, {}, {}});
      continue;
    }
    const std::string& name = item.At("SpecialToken", where).At("id", where).String(where);
    if (special == nullptr) ThrowFile("{}: special_tokens is missing", where);
    const JsonValue& entry = special->At(name, fmt::format("{}.special_tokens", where));
    Piece piece;
    for (const JsonValue& id : entry.At("ids", where).Items(where)) {
      piece.ids.push_back(static_cast<int32_t>(id.Int(where, 0, kMaxVocabulary - 1)));
    }
    for (const JsonValue& token : entry.At("tokens", where).Items(where)) piece.tokens.push_back(token.String(where));
    if (piece.tokens.size() != piece.ids.size())
      ThrowFile("{}: '{}' has {} ids and {} tokens", where, name, piece.ids.size(), piece.tokens.size());
    step.pieces.push_back(std::move(piece));
  }
  if (!step.pieces.empty()) steps_.push_back(std::move(step));
}

// "cls" in front, "sep" behind, each [token, id].
void PostProcessor::ReadPair(const JsonValue& json, std::string_view where) {
  Step step;
  const auto piece = [&](std::string_view name) {
    const JsonValue::Array& pair = json.At(name, where).Items(where);
    if (pair.size() != 2) ThrowFile("{}.{}: expected [token, id]", where, name);
    step.pieces.push_back(
        {false, {static_cast<int32_t>(pair[1].Int(where, 0, kMaxVocabulary - 1))}, {pair[0].String(where)}});
  };
  piece("cls");
  step.pieces.push_back({true, {}, {}});
  piece("sep");
  steps_.push_back(std::move(step));
}

void PostProcessor::Apply(RawEncoding& encoding, bool add_special, bool with_offsets) const {
  for (const Step& step : steps_) {
    if (step.trim) {
      if (with_offsets) TrimOffsets(encoding, step.trim_keeps_prefix_space);
      continue;
    }
    if (step.pieces.empty()) continue;
    const auto sequences =
        std::count_if(step.pieces.begin(), step.pieces.end(), [](const Piece& p) { return p.sequence; });
    if (!add_special && sequences == 1) continue;
    RawEncoding result;
    for (const Piece& piece : step.pieces) {
      if (!piece.sequence && !add_special) continue;
      const std::vector<int32_t>& ids = piece.sequence ? encoding.ids : piece.ids;
      result.ids.insert(result.ids.end(), ids.begin(), ids.end());
      if (!with_offsets) continue;
      const std::vector<std::string>& tokens = piece.sequence ? encoding.tokens : piece.tokens;
      result.tokens.insert(result.tokens.end(), tokens.begin(), tokens.end());
      if (piece.sequence) {
        result.chars.insert(result.chars.end(), encoding.chars.begin(), encoding.chars.end());
      } else {
        result.chars.resize(result.chars.size() + piece.ids.size());
      }
    }
    encoding = std::move(result);
  }
}

std::vector<int32_t> PostProcessor::Ids() const {
  std::vector<int32_t> ids;
  for (const Step& step : steps_) {
    for (const Piece& piece : step.pieces) ids.insert(ids.end(), piece.ids.begin(), piece.ids.end());
  }
  return ids;
}

}  // namespace octavo::text
