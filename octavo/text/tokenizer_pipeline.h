// The tokenizer that is put together from parts: added tokens, normalizer, pre-tokenizer, model, post-processor,
// decoder. What tokenizer.json describes, and what tiktoken and GGUF files amount to. Two ways to encode with one
// result: the detailed one keeps offsets through every part, the fast one gives ids only.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "octavo/text/added_tokens.h"
#include "octavo/text/bpe.h"
#include "octavo/text/decoder.h"
#include "octavo/text/normalizer.h"
#include "octavo/text/postprocess.h"
#include "octavo/text/pretokenizer.h"
#include "octavo/text/tokenizer.h"
#include "octavo/text/tokenizer_model.h"

namespace octavo::text {

struct PipelineParts {
  std::string description;
  std::vector<std::string> notes;
  std::vector<AddedToken> added;               // ids already given
  std::unique_ptr<Normalizer> normalizer;      // may be null
  std::unique_ptr<PreTokenizer> pretokenizer;  // may be null
  std::unique_ptr<Model> model;
  PostProcessor post;
  Decoder decoder;
};

class Pipeline : public Tokenizer {
 public:
  explicit Pipeline(PipelineParts parts);
  ~Pipeline() override;

  std::string Decode(std::span<const int32_t> ids, const DecodeOptions& options) const override;
  std::unique_ptr<DecodeState> StartDecode(const DecodeOptions& options) const override;
  int32_t vocabulary_size() const override { return vocabulary_size_; }
  std::optional<int32_t> Find(std::string_view token) const override;
  std::optional<std::string> Token(int32_t id) const override;
  bool IsSpecial(int32_t id) const override;
  std::optional<std::string> TokenBytes(int32_t id) const override;

  // What `id` decodes from: the token's text, or nothing for a hole or a token to be skipped.
  std::optional<std::string_view> DecodeText(int32_t id, bool skip_special) const;

 private:
  struct Scratch;
  class Lease;

  void EncodeText(std::string_view text, const SpecialPolicy& policy, bool add_special, std::vector<int32_t>& ids,
                  Encoding* detail) const override;
  void EncodeDetailed(std::string_view text, const SpecialPolicy& policy, bool add_special, bool tracked,
                      std::vector<int32_t>& ids, Encoding* detail) const;
  void EncodeBytesFast(std::string_view text, const SpecialPolicy& policy, Scratch& scratch,
                       std::vector<int32_t>& ids) const;
  void EncodeChunk(std::string_view text, bool plain, Scratch& scratch, std::vector<int32_t>& ids) const;
  void EncodeCuts(std::string_view text, size_t cut, bool plain, Scratch& scratch, std::vector<int32_t>& ids) const;
  void EncodeShort(std::string_view text, size_t cut, bool plain, Scratch& scratch, std::vector<int32_t>& ids) const;
  void CutAndEncode(std::string_view text, size_t cut, bool plain, Scratch& scratch, std::vector<int32_t>& ids) const;
  std::vector<Piece> Pieces(std::string_view text, const SpecialPolicy& policy, bool tracked,
                            RegexScratch& regex) const;
  void InitDecodeTable();
  std::unique_ptr<Scratch> TakeScratch() const;
  void GiveBack(std::unique_ptr<Scratch> scratch) const;

  AddedTokens added_;
  std::unique_ptr<Normalizer> normalizer_;
  std::unique_ptr<PreTokenizer> pretokenizer_;
  std::unique_ptr<Model> model_;
  PostProcessor post_;
  Decoder decoder_;
  int32_t vocabulary_size_ = 0;
  std::vector<bool> special_;   // by id
  std::vector<bool> skipped_;   // by id: left out of decoded text with skip_special
  bool special_after_ = false;  // some special token is matched after normalization

  // Byte level: the cuts, and the bytes of each id.
  const Bpe* byte_bpe_ = nullptr;  // null: another kind of model
  ByteLevelCuts cuts_;
  std::string decode_bytes_;
  std::vector<uint32_t> decode_ends_;  // by id; empty: another kind of decoder

  // Buffers and caches that wait for the next call.
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Scratch>> idle_;
};

}  // namespace octavo::text
