// Tokenizers: text to ids and back, with the same ids as the libraries that made the model files. The one interface
// that the trainer's data, the engine, the server and the command line use; how a tokenizer was written
// (tokenizer.json, SentencePiece .model, tiktoken ranks, GGUF arrays, plain bytes) does not show through it. Chat
// templates are in template.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/text/added_tokens.h"
#include "octavo/text/aligned_text.h"

namespace octavo::text {

struct EncodeOptions {
  // Put the tokenizer's own special tokens (BOS, EOS, …) around the text.
  bool add_special = false;
  // Let special tokens written in the text become their ids. Off for anything a user wrote: there "<|im_end|>" is eight
  // characters like any others.
  bool parse_special = false;
};

// A stretch of a longer text, and who wrote it: only trusted text may hold special tokens.
struct TextPiece {
  std::string_view text;
  bool trusted = false;
};

// Ids with what each stands for. Special tokens added around the text have empty spans at 0.
struct Encoding {
  std::vector<int32_t> ids;
  std::vector<std::string> tokens;  // as the vocabulary spells them; an unknown stretch as the text does
  std::vector<Span> bytes;          // of the text, valid UTF-8 in which bad bytes count as U+FFFD
  std::vector<Span> chars;
};

struct DecodeOptions {
  bool skip_special = false;
  // Give nothing for an id that is no token instead of an error: models have more outputs than tokens.
  bool skip_unknown_ids = false;
};

// The state of decoding one sequence, token by token.
class DecodeState {
 public:
  virtual ~DecodeState() = default;
  // Appends the text that `id` completes.
  virtual void Push(int32_t id, std::string& out) = 0;
  // Appends what was held back. The state is used up.
  virtual void Finish(std::string& out) = 0;
};

// The ids with a role. A tokenizer may lack any of them.
struct RoleIds {
  std::optional<int32_t> bos, eos, unknown, pad;
};

// Immutable; any number of threads may use one.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Any bytes are accepted; those that are not UTF-8 count as U+FFFD (plain bytes and SentencePiece see them as they
  // are).
  std::vector<int32_t> Encode(std::string_view text, const EncodeOptions& options = {}) const;
  // The pieces as one text: the same ids as for the whole, but special tokens only where trusted text spells them out.
  std::vector<int32_t> Encode(std::span<const TextPiece> pieces, bool add_special) const;
  Encoding EncodeWithOffsets(std::string_view text, const EncodeOptions& options = {}) const;

  // Text of the ids. Throws a usage Error for an id outside [0, vocabulary_size()).
  virtual std::string Decode(std::span<const int32_t> ids, const DecodeOptions& options = {}) const;
  // For streams: see stream_decoder.h.
  virtual std::unique_ptr<DecodeState> StartDecode(const DecodeOptions& options) const = 0;

  virtual int32_t vocabulary_size() const = 0;                            // largest id + 1
  virtual std::optional<int32_t> Find(std::string_view token) const = 0;  // as the vocabulary spells it
  virtual std::optional<std::string> Token(int32_t id) const = 0;
  virtual bool IsSpecial(int32_t id) const = 0;
  // The exact bytes that the token adds to a text in which others stand before it; part of a character, perhaps.
  // Nothing for special and unknown tokens and for holes, and for all tokens where text is not the bytes of the tokens
  // one after the other. At the very beginning of a text a decoder may leave out spaces in front.
  virtual std::optional<std::string> TokenBytes(int32_t id) const = 0;

  const RoleIds& roles() const { return roles_; }
  void set_roles(const RoleIds& roles) { roles_ = roles; }
  // What it is: "tokenizer.json, BPE".
  const std::string& description() const { return description_; }
  // What the file says and is not done: truncation, padding, dropout.
  const std::vector<std::string>& notes() const { return notes_; }

 protected:
  explicit Tokenizer(std::string description) : description_(std::move(description)) {}

  // Appends the ids of `text`; fills `detail` too when it is not null (its ids are not read).
  virtual void EncodeText(std::string_view text, const SpecialPolicy& policy, bool add_special,
                          std::vector<int32_t>& ids, Encoding* detail) const = 0;
  // True when EncodeText takes any bytes.
  virtual bool TakesAnyBytes() const { return false; }
  // Throws the usage Error unless the id exists or unknown ids are to be skipped.
  void CheckId(int32_t id, const DecodeOptions& options) const;

  RoleIds roles_;
  std::string description_;
  std::vector<std::string> notes_;
};

// From a tokenizer file or a model directory that holds one: tokenizer.json, tokenizer.model, *.tiktoken. Throws a file
// Error.
std::unique_ptr<Tokenizer> LoadTokenizer(const std::string& path);

// From the text of a tokenizer.json; `name` begins error messages.
std::unique_ptr<Tokenizer> ParseTokenizerJson(std::string_view json, std::string_view name);

// Every byte is a token: ids 0-255 are bytes, 256 begins and 257 ends a text.
std::unique_ptr<Tokenizer> MakeByteTokenizer();

}  // namespace octavo::text
