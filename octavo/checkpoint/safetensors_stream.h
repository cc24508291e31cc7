// Writes one safetensors file whose tensors become known one after the other: room for the header is left at the
// beginning and filled in at the end, the rest of it with blanks. For the converter, which learns the shape of a scale
// when it has quantized its weight, and holds one parameter at a time. Where everything is known before,
// safetensors_writer.h is the simpler way.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "octavo/base/publish.h"
#include "octavo/checkpoint/safetensors_writer.h"

namespace octavo {

class SafetensorsStream {
 public:
  // `room` for the header: at least HeaderRoom of all that is to come.
  SafetensorsStream(FileWriter file, uint64_t room, const std::map<std::string, std::string>& metadata);

  // What a header takes at most for a tensor of this name and up to 8 axes.
  static uint64_t HeaderRoom(const std::string& name) { return 2 * name.size() + 300; }

  // All bytes of the next tensor; gives their digest. A name twice or a wrong number of bytes is a bug.
  std::string Add(const TensorEntry& entry, std::span<const std::byte> bytes);

  // Fills in the header and puts the file on disk.
  void Close();

  // After Close.
  const std::string& header_digest() const { return header_digest_; }
  uint64_t file_bytes() const { return file_bytes_; }

 private:
  FileWriter file_;
  uint64_t room_;
  std::string header_;
  std::set<std::string> names_;
  uint64_t at_ = 0;  // in the data
  std::string header_digest_;
  uint64_t file_bytes_ = 0;
};

}  // namespace octavo
