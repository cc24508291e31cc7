// The stages of which decoder.h makes its chains, each the streaming form of one decoder of tokenizer.json. Used by
// decoder.cc and the loaders of other formats.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "octavo/text/decoder.h"
#include "octavo/text/normalizer.h"

namespace octavo::text {

// "a", " b", " c": what the reference does without a decoder.
std::unique_ptr<DecodeStage> MakeJoinBySpaces();

// Byte-level characters to bytes, and whole UTF-8 characters out; bytes that are none become U+FFFD.
std::unique_ptr<DecodeStage> MakeByteLevelStage();

// <0xAB> to bytes, and whole UTF-8 characters out; bytes that are none become U+FFFD each.
std::unique_ptr<DecodeStage> MakeByteFallback(DecodeMode mode);

// Nothing to do but mark: later stages see one token.
std::unique_ptr<DecodeStage> MakeFuse();

// Up to `start` times `c` at the front of a token and `stop` times at its end vanish; for single tokens, and for one
// that arrives in parts.
std::unique_ptr<DecodeStage> MakeStrip(char32_t c, size_t start, size_t stop);
std::unique_ptr<DecodeStage> MakeStripFused(char32_t c, size_t start, size_t stop);

std::unique_ptr<DecodeStage> MakeReplaceLiteral(std::string from, std::string to);
std::unique_ptr<DecodeStage> MakeReplace(std::shared_ptr<const TextPattern> pattern, std::string to);

// The space symbol to spaces; those of the first token vanish when `strip_first`.
std::unique_ptr<DecodeStage> MakeMetaspace(std::string symbol, bool strip_first, bool fused);

std::unique_ptr<DecodeStage> MakeWordPiece(std::string prefix, bool cleanup);
std::unique_ptr<DecodeStage> MakeBpeSuffix(std::string suffix);
std::unique_ptr<DecodeStage> MakeCtc(std::string pad, std::string delimiter, bool cleanup);

// Gathers everything and gives it to `stage` as one token at the end.
std::unique_ptr<DecodeStage> MakeHold(std::unique_ptr<DecodeStage> stage);

// Length of the longest prefix of `bytes` after which no more bytes can complete a character: everything but a started
// one.
size_t CompletePrefix(std::string_view bytes);

// The byte of a token "<0xAB>", or -1.
int FallbackByte(std::string_view token);

}  // namespace octavo::text
