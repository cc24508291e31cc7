// The parts of a SentencePiece .model file (a protocol buffer) that matter here, read and written by hand. A file is
// read and checked with this before its library sees it, because the library trusts what it is given; GGUF vocabularies
// are written with it, so that the library can run them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace octavo::text {

enum class PieceType : int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

struct SentencePieceModel {
  struct Piece {
    std::string text;
    float score = 0;
    PieceType type = PieceType::kNormal;
  };
  enum class Kind : int32_t { kUnigram = 1, kBpe = 2, kWord = 3, kChar = 4 };

  std::vector<Piece> pieces;
  Kind kind = Kind::kUnigram;
  bool byte_fallback = false;
  bool space_as_suffix = false;
  int32_t unknown_id = 0;
  int32_t bos_id = 1;
  int32_t eos_id = 2;
  int32_t pad_id = -1;
  std::string unknown_surface = " \xE2\x81\x87 ";  // U+2047 between spaces
  std::string charsmap, decode_charsmap;
  bool add_dummy_prefix = true;
  bool remove_extra_spaces = true;
};

// Throws a file Error for bytes that are no such message, for ids and sizes out of range, for pieces that are empty,
// too long, not UTF-8 or without a finite score, and for character maps that leave their arrays.
SentencePieceModel ReadSentencePieceModel(std::string_view bytes, std::string_view name);

// The message that the library loads.
std::string WriteSentencePieceModel(const SentencePieceModel& model);

}  // namespace octavo::text
