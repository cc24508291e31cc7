// From tokens back to text: the decoders of tokenizer.json as a chain of stages through which tokens flow. A whole
// sequence and a stream go through the same stages, so that both give the same text; a stream never holds back more
// than it must and never lets half a character out. Used by the tokenizer pipeline and by stream_decoder.h.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/text/tokenizer_json.h"

namespace octavo::text {

// How a chain is run. In a whole sequence a run of byte tokens is judged together: one bad byte spoils it, as in the
// reference library. A stream cannot wait for the end of a run and lets good characters out as they are complete.
enum class DecodeMode { kWhole, kStream };

// One stage of a running chain. Tokens go in; text goes to the next one through `out`.
class DecodeStage {
 public:
  using Out = std::function<void(std::string_view)>;
  virtual ~DecodeStage() = default;
  virtual void Push(std::string_view token, const Out& out) = 0;
  virtual void Finish(const Out&) {}
};

// A running chain: the state of decoding one sequence.
class DecodeRun {
 public:
  explicit DecodeRun(std::vector<std::unique_ptr<DecodeStage>> stages) : stages_(std::move(stages)) {}
  void Push(std::string_view token, std::string& out) { PushFrom(0, token, out); }
  void Finish(std::string& out);

 private:
  void PushFrom(size_t stage, std::string_view token, std::string& out);
  std::vector<std::unique_ptr<DecodeStage>> stages_;
};

// A chain of decoders, immutable.
class Decoder {
 public:
  // Without a decoder tokens are joined by spaces, as the reference library does.
  Decoder();
  // From the "decoder" object of tokenizer.json. Throws a file Error that names an unknown type.
  Decoder(const JsonValue& json, std::string_view where);
  Decoder(Decoder&&) noexcept;
  Decoder& operator=(Decoder&&) noexcept;
  ~Decoder();

  // The chains that other formats need without JSON.
  static Decoder ByteLevel();
  static Decoder Metaspace(bool strip_first_space);  // U+2581 and <0xAB> bytes, as SentencePiece

  DecodeRun Start(DecodeMode mode) const;

  // The bytes that a token adds to a text in which others stand before it; nothing when that depends on its neighbours.
  std::optional<std::string> BytesOf(std::string_view token) const;

  // True when text is the bytes of the tokens one after the other, and nothing else: byte level only.
  bool IsByteLevelOnly() const;

  struct Part;

 private:
  void Read(const JsonValue& json, std::string_view where, int depth);
  std::vector<std::unique_ptr<Part>> parts_;
};

}  // namespace octavo::text
