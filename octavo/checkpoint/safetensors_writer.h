// Writes one safetensors file as a stream: the names, types and shapes first, then the data of each tensor in the same
// order, in pieces of any size. Every tensor is digested on the way. Used by checkpoints and by the converter, which
// never holds more than a tensor. Publishing the file is the caller's business (base/publish.h).
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "octavo/base/digest.h"
#include "octavo/base/publish.h"

namespace octavo {

struct TensorEntry {
  std::string name;
  std::string type;  // "F32", "BF16", "F8_E4M3", … (SafetensorsType)
  std::vector<int64_t> shape;

  uint64_t bytes() const;  // of its data; a usage error when they are not whole or too many
};

class SafetensorsWriter {
 public:
  // Writes the header. A name twice, or a header over the format's limit, is a usage error. Data begins at a multiple
  // of 8 bytes; give the widest types first and every tensor is aligned for its type.
  SafetensorsWriter(FileWriter file, std::vector<TensorEntry> entries,
                    const std::map<std::string, std::string>& metadata = {});

  // The next bytes of the data.
  void Write(std::span<const std::byte> bytes);

  // Puts the file on disk. Too little data is a bug.
  void Close();

  // After Close: the digest of each tensor's data in the order of the entries; that of the length and the header; and
  // the size of the file.
  const std::vector<std::string>& digests() const { return digests_; }
  const std::string& header_digest() const { return header_digest_; }
  uint64_t file_bytes() const { return file_bytes_; }

 private:
  void FinishTensors();

  FileWriter file_;
  std::vector<TensorEntry> entries_;
  Digest digest_;
  uint64_t left_ = 0;  // bytes that the current tensor still needs
  std::vector<std::string> digests_;
  std::string header_digest_;
  uint64_t file_bytes_ = 0;
};

}  // namespace octavo
