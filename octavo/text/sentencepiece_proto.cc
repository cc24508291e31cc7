#include "octavo/text/sentencepiece_proto.h"

#include <cmath>
#include <cstring>

#include "octavo/base/error.h"
#include "octavo/text/normalizer_charsmap.h"
#include "octavo/text/tokenizer_trie.h"
#include "octavo/text/tokenizer_vocab.h"
#include "octavo/text/unicode.h"

namespace octavo::text {
namespace {

// One field of a message.
struct Field {
  uint32_t number = 0;
  uint32_t wire = 0;       // 0 varint, 1 eight bytes, 2 length and bytes, 5 four bytes
  uint64_t value = 0;      // wire 0, 1, 5
  std::string_view bytes;  // wire 2
};

class Reader {
 public:
  Reader(std::string_view bytes, std::string_view name) : rest_(bytes), name_(name) {}

  bool Next(Field& field) {
    if (rest_.empty()) return false;
    const uint64_t tag = Varint();
    field.number = static_cast<uint32_t>(tag >> 3);
    field.wire = static_cast<uint32_t>(tag & 7);
    if (tag >> 3 == 0 || tag >> 3 > 0x1FFFFFFF) Fail("a field without a number");
    field.bytes = {};
    switch (field.wire) {
      case 0:
        field.value = Varint();
        break;
      case 1:
        field.value = Fixed(8);
        break;
      case 5:
        field.value = Fixed(4);
        break;
      case 2: {
        const uint64_t length = Varint();
        if (length > rest_.size()) Fail("a length past the end");
        field.bytes = rest_.substr(0, length);
        rest_.remove_prefix(length);
        break;
      }
      default:
        Fail("a field of an unknown kind");
    }
    return true;
  }

 private:
  [[noreturn]] void Fail(std::string_view what) const {
    throw Error(ErrorCode::kFile, fmt::format("{}: not a SentencePiece model: {}", name_, what),
                "expected a .model file, or tiktoken ranks as text");
  }

  uint64_t Varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) Fail("it ends inside a number");
      const auto byte = static_cast<unsigned char>(rest_[0]);
      rest_.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    Fail("a number that does not end");
  }

  uint64_t Fixed(size_t bytes) {
    if (rest_.size() < bytes) Fail("it ends inside a number");
    uint64_t value = 0;
    std::memcpy(&value, rest_.data(), bytes);
    rest_.remove_prefix(bytes);
    return value;
  }

  std::string_view rest_;
  std::string_view name_;
};

float AsFloat(const Field& field) {
  const auto bits = static_cast<uint32_t>(field.value);
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

SentencePieceModel::Piece ReadPiece(std::string_view bytes, size_t index, std::string_view name) {
  SentencePieceModel::Piece piece;
  Reader reader(bytes, name);
  Field field;
  while (reader.Next(field)) {
    if (field.number == 1 && field.wire == 2) piece.text = field.bytes;
    if (field.number == 2 && field.wire == 5) piece.score = AsFloat(field);
    if (field.number == 3 && field.wire == 0) {
      if (field.value < 1 || field.value > 6)
        ThrowFile("{}: piece {} has type {}, expected 1 to 6", name, index, field.value);
      piece.type = static_cast<PieceType>(field.value);
    }
  }
  if (piece.text.empty() || piece.text.size() > ByteTrie::kMaxKey) {
    ThrowFile("{}: piece {} has {} bytes, expected 1 to {}", name, index, piece.text.size(), ByteTrie::kMaxKey);
  }
  if (!IsValidUtf8(piece.text) || piece.text.find('\0') != std::string::npos) {
    ThrowFile("{}: piece {} is not UTF-8 text", name, index);
  }
  if (!std::isfinite(piece.score)) ThrowFile("{}: piece {} '{}' has no finite score", name, index, piece.text);
  return piece;
}

void ReadTrainer(std::string_view bytes, std::string_view name, SentencePieceModel& model) {
  Reader reader(bytes, name);
  Field field;
  while (reader.Next(field)) {
    const auto id = static_cast<int32_t>(static_cast<int64_t>(field.value));
    switch (field.number) {
      case 3:
        if (field.value < 1 || field.value > 4)
          ThrowFile("{}: model type {} is not known, expected 1 to 4", name, field.value);
        model.kind = static_cast<SentencePieceModel::Kind>(field.value);
        break;
      case 24:
        model.space_as_suffix = field.value != 0;
        break;
      case 35:
        model.byte_fallback = field.value != 0;
        break;
      case 40:
        model.unknown_id = id;
        break;
      case 41:
        model.bos_id = id;
        break;
      case 42:
        model.eos_id = id;
        break;
      case 43:
        model.pad_id = id;
        break;
      case 44:
        model.unknown_surface = field.bytes;
        break;
      default:
        break;
    }
  }
  if (!IsValidUtf8(model.unknown_surface)) ThrowFile("{}: the text for unknown pieces is not UTF-8", name);
}

void ReadNormalizer(std::string_view bytes, std::string_view name, SentencePieceModel& model, std::string& charsmap,
                    bool encoding) {
  Reader reader(bytes, name);
  Field field;
  while (reader.Next(field)) {
    if (field.number == 2 && field.wire == 2) charsmap = field.bytes;
    if (!encoding || field.wire != 0) continue;
    if (field.number == 3) model.add_dummy_prefix = field.value != 0;
    if (field.number == 4) model.remove_extra_spaces = field.value != 0;
    if (field.number == 5 && field.value == 0) ThrowFile("{}: escape_whitespaces=false is not supported", name);
  }
  if (!charsmap.empty()) Charsmap(charsmap, name).CheckReachable(name);
}

void PutVarint(uint64_t value, std::string& out) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

void PutNumber(uint32_t number, uint64_t value, std::string& out) {
  PutVarint(number << 3, out);
  PutVarint(value, out);
}

void PutBytes(uint32_t number, std::string_view bytes, std::string& out) {
  PutVarint(number << 3 | 2, out);
  PutVarint(bytes.size(), out);
  out.append(bytes);
}

void PutFloat(uint32_t number, float value, std::string& out) {
  PutVarint(number << 3 | 5, out);
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

SentencePieceModel ReadSentencePieceModel(std::string_view bytes, std::string_view name) {
  SentencePieceModel model;
  Reader reader(bytes, name);
  Field field;
  while (reader.Next(field)) {
    if (field.wire != 2) continue;
    if (field.number == 1) {
      model.pieces.push_back(ReadPiece(field.bytes, model.pieces.size(), name));
      if (model.pieces.size() > static_cast<size_t>(kMaxVocabulary))
        ThrowFile("{}: more than {} pieces", name, kMaxVocabulary);
    }
    if (field.number == 2) ReadTrainer(field.bytes, name, model);
    if (field.number == 3) ReadNormalizer(field.bytes, name, model, model.charsmap, true);
    if (field.number == 5) ReadNormalizer(field.bytes, name, model, model.decode_charsmap, false);
  }
  if (model.pieces.empty()) ThrowFile("{}: not a SentencePiece model: it has no pieces", name);
  return model;
}

std::string WriteSentencePieceModel(const SentencePieceModel& model) {
  std::string out;
  std::string part;
  for (const SentencePieceModel::Piece& piece : model.pieces) {
    part.clear();
    PutBytes(1, piece.text, part);
    PutFloat(2, piece.score, part);
    PutNumber(3, static_cast<uint64_t>(piece.type), part);
    PutBytes(1, part, out);
  }
  part.clear();
  const auto id = [](int32_t value) { return static_cast<uint64_t>(static_cast<int64_t>(value)); };
  PutNumber(3, static_cast<uint64_t>(model.kind), part);
  PutNumber(24, model.space_as_suffix ? 1 : 0, part);
  PutNumber(35, model.byte_fallback ? 1 : 0, part);
  PutNumber(40, id(model.unknown_id), part);
  PutNumber(41, id(model.bos_id), part);
  PutNumber(42, id(model.eos_id), part);
  PutNumber(43, id(model.pad_id), part);
  PutBytes(44, model.unknown_surface, part);
  PutBytes(2, part, out);
  part.clear();
  if (!model.charsmap.empty()) PutBytes(2, model.charsmap, part);
  PutNumber(3, model.add_dummy_prefix ? 1 : 0, part);
  PutNumber(4, model.remove_extra_spaces ? 1 : 0, part);
  PutBytes(3, part, out);
  return out;
}

}  // namespace octavo::text
