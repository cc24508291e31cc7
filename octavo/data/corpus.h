// All the data of one kind (training, or held-out data of its own) as numbered units that can be read in any order. A
// unit is a document of a text, or a window of tokens. Used by the packer and by the entropy; it knows no order, no
// rows and no epochs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "octavo/text/tokenizer.h"

namespace octavo::data {

// Tokens of one document or of a part of one, at least two: every token but the first is a target.
using Sequence = std::vector<int32_t>;

struct CorpusOptions {
  std::string kind = "auto";  // of files: json, text, or auto by their names
  std::vector<std::string> columns = {"text"};
  std::string separator = "\n\n";
  std::string token_format = "auto";
  int64_t token_document_id = -1;
  int64_t length = 0;      // tokens in a row: the size of a window
  int64_t vocab_size = 0;  // ids must be below
  bool add_bos = true, add_eos = true;
  bool any_bytes = false;                            // text need not be UTF-8: the tokenizer's tokens are bytes
  std::shared_ptr<const text::Tokenizer> tokenizer;  // null: only token files are allowed
};

// A file of the corpus.
class CorpusPart {
 public:
  virtual ~CorpusPart() = default;
  virtual int64_t units() const = 0;
  virtual void Read(int64_t unit, std::vector<Sequence>& sequences) const = 0;
  // What would change if the data did: size, first and last bytes.
  virtual std::string Identity() const = 0;
};

class Corpus {
 public:
  // Throws a file Error for a file that cannot be read, a usage Error when text comes without a tokenizer.
  Corpus(const std::vector<std::filesystem::path>& files, const CorpusOptions& options);

  int64_t units() const { return starts_.back(); }
  // The sequences of a unit; there may be none (an empty text).
  std::vector<Sequence> Read(int64_t unit) const;
  // 32 digits that differ when files, their order, the tokenizer or options do. Does not depend on where files are.
  const std::string& fingerprint() const { return fingerprint_; }
  // "3 files, 1204 documents, tokenizer.json, BPE".
  const std::string& description() const { return description_; }

 private:
  std::vector<std::unique_ptr<CorpusPart>> parts_;
  std::vector<int64_t> starts_;  // first unit of every part, and the end
  std::string fingerprint_, description_;
};

}  // namespace octavo::data
