#include "octavo/text/llama2c_vocab.h"

#include <cstring>
#include <string>

#include "octavo/base/error.h"
#include "octavo/text/sentencepiece.h"
#include "octavo/text/tokenizer_vocab.h"

namespace octavo::text {
namespace {

template <typename T>
T Read(std::string_view& rest, std::string_view name) {
  if (rest.size() < sizeof(T)) ThrowFile("{}: ends in the middle of a token", name);
  T value;
  std::memcpy(&value, rest.data(), sizeof value);
  rest.remove_prefix(sizeof value);
  return value;
}

bool IsByte(std::string_view piece) { return piece.size() == 6 && piece.starts_with("<0x") && piece.ends_with('>'); }

}  // namespace

GgufVocabulary ParseLlama2cVocabulary(std::string_view bytes, std::string_view name) {
  constexpr int32_t kMostBytes = 1024;  // of one piece
  GgufVocabulary vocabulary;
  vocabulary.model = "llama";
  std::string_view rest = bytes;
  const auto longest = Read<int32_t>(rest, name);
  if (longest < 1 || longest > kMostBytes)
    ThrowFile("{}: longest token of {} bytes: no llama2.c tokenizer", name, longest);
  while (!rest.empty()) {
    const auto id = static_cast<int64_t>(vocabulary.tokens.size());
    if (id == kMaxVocabulary) ThrowFile("{}: more than {} tokens", name, kMaxVocabulary);
    const auto score = Read<float>(rest, name);
    const auto length = Read<int32_t>(rest, name);
    if (length < 0 || length > longest || static_cast<size_t>(length) > rest.size()) {
      ThrowFile("{}: token {} has {} bytes, the longest {}, {} are left", name, id, length, longest, rest.size());
    }
    std::string piece(rest.substr(0, static_cast<size_t>(length)));
    rest.remove_prefix(static_cast<size_t>(length));
    PieceType type = PieceType::kNormal;
    if (id == 0) {
      type = PieceType::kUnknown;
    } else if (id == 1 || id == 2) {
      type = PieceType::kControl;
      piece = id == 1 ? "<s>" : "</s>";  // written with line breaks around them
    } else if (IsByte(piece)) {
      type = PieceType::kByte;
    } else {
      for (size_t at = 0; (at = piece.find(' ', at)) != std::string::npos; at += 3)
        piece.replace(at, 1, "\xE2\x96\x81");
    }
    vocabulary.tokens.push_back(std::move(piece));
    vocabulary.scores.push_back(score);
    vocabulary.types.push_back(static_cast<int32_t>(type));
  }
  return vocabulary;
}

}  // namespace octavo::text
