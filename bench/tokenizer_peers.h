// The peers of the tokenizer benchmark, Hugging Face's tokenizers and tiktoken, in a Python process of their own that
// takes one command a line. Missing packages are no error: the peer is then not there.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/tokenizer_texts.h"

namespace octavo::bench {

// Processor time of one pass over a corpus, and what came out.
struct PassResult {
  double seconds = 0;
  uint64_t count = 0;     // ids of an encoding, bytes of a decoding
  uint32_t checksum = 0;  // CRC-32 of the ids as int32, or of the text
};

uint32_t Crc32(uint32_t crc, const void* data, size_t size);

class TokenizerPeers {
 public:
  // `python` runs tokenizer_peers.py; `folder` is where texts are put for it.
  TokenizerPeers(const std::string& python, std::string folder);
  ~TokenizerPeers();
  TokenizerPeers(const TokenizerPeers&) = delete;
  TokenizerPeers& operator=(const TokenizerPeers&) = delete;

  // "tokenizers 0.23.3", …; empty without Python.
  const std::vector<std::string>& names() const { return names_; }
  void Load(const std::string& tokenizer_json);
  void SetCorpus(const Corpus& corpus);
  // Nothing when the peer cannot do this tokenizer.
  std::optional<PassResult> Encode(size_t peer);
  std::optional<PassResult> Decode(size_t peer);

 private:
  std::string Ask(const std::string& command);
  std::optional<PassResult> Pass(const char* what, size_t peer);

  std::string folder_;
  int pid_ = -1;
  std::FILE *to_ = nullptr, *from_ = nullptr;
  std::vector<std::string> names_;
};

}  // namespace octavo::bench
