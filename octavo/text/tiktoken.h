// Tokenizers of tiktoken rank files (one "base64 rank" a line), such as Llama 3's tokenizer.model and OpenAI's
// *.tiktoken. A rank file has neither pattern nor special tokens: both are known by the number of ranks, or given by
// the caller.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "octavo/text/tokenizer.h"

namespace octavo::text {

struct TiktokenEncoding {
  std::string name;
  std::string pattern;
  std::vector<std::pair<std::string, int32_t>> special;
  std::string bos, eos;  // empty: none
  bool add_bos = false;
};

// The encoding that a file of so many ranks belongs to, if it is a known one: gpt2, p50k, cl100k, o200k, Llama 3, Qwen.
std::optional<TiktokenEncoding> TiktokenEncodingBySize(size_t ranks);

// True when the text begins like a rank file.
bool LooksLikeTiktoken(std::string_view text);

// Throws a file Error for a malformed line, a missing byte, or a number of ranks that is not known when no encoding is
// given.
std::unique_ptr<Tokenizer> ParseTiktoken(std::string_view text, std::string_view name,
                                         const std::optional<TiktokenEncoding>& encoding = std::nullopt);

}  // namespace octavo::text
