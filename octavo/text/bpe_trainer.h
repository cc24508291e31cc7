// Training of byte-level BPE: from texts to the merges of a vocabulary, and the tokenizer.json that holds them. Used by
// `octavo tokenizer train`. The result depends on the texts, their order not included, and on the options only: not on
// threads, not on hashes. Pairs are chosen as the Hugging Face trainer does: the most frequent, of equal ones the one
// with the smaller ids.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "octavo/base/thread_pool.h"

namespace octavo::text {

struct BpeTrainerOptions {
  int32_t vocabulary_size = 0;     // special tokens and the 256 bytes included
  std::string pattern = "llama3";  // gpt2, llama3, qwen2, o200k
  std::vector<std::string> special_tokens = {"<|endoftext|>"};
  int64_t min_frequency = 2;  // pairs that occur less often are not merged
};

struct TrainedBpe {
  BpeTrainerOptions options;
  std::vector<std::string> tokens;                  // bytes of each id; special tokens as they are spelled
  std::vector<std::pair<int32_t, int32_t>> merges;  // in order
  int64_t words = 0, different_words = 0;           // of the texts
  int64_t bytes = 0, ids = 0;                       // of the texts, and how many ids they have become
};

// The patterns there are, for messages.
std::vector<std::string_view> TrainerPatterns();

// Bytes that are not UTF-8 count as U+FFFD. Throws a usage Error for options that make no sense.
TrainedBpe TrainBpe(std::span<const std::string_view> texts, const BpeTrainerOptions& options, ThreadPool& pool);

// The files tokenizer.json and tokenizer_config.json. The first special token begins and ends texts; with `chat` (which
// needs <|im_start|> and <|im_end|> among them) the configuration has a ChatML template and <|im_end|> ends texts.
std::string TokenizerJson(const TrainedBpe& trained);
std::string TokenizerConfigJson(const TrainedBpe& trained, bool chat);

}  // namespace octavo::text
