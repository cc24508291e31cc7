#include "octavo/text/bpe_trainer.h"

#include <algorithm>
#include <array>
#include <optional>
#include <queue>
#include <unordered_map>

#include "octavo/base/error.h"
#include "octavo/text/bpe_trainer_words.h"
#include "octavo/text/tokenizer_bytechars.h"
#include "octavo/text/tokenizer_vocab.h"
#include "octavo/text/unicode.h"

namespace octavo::text {
namespace {

uint64_t Key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}
int32_t Left(uint64_t key) { return static_cast<int32_t>(key >> 32); }
int32_t Right(uint64_t key) { return static_cast<int32_t>(key & 0xFFFFFFFFu); }

struct KeyHash {
  size_t operator()(uint64_t key) const {
    key *= 0x9E3779B97F4A7C15ULL;
    return key ^ (key >> 29);
  }
};

// How often a pair occurs, and in which words: some of them may have lost it since.
struct PairEntry {
  int64_t count = 0;
  std::vector<uint32_t> words;
};

// A pair as it stood when it was put on the heap.
struct Candidate {
  int64_t count;
  uint64_t key;
  bool operator<(const Candidate& other) const { return count != other.count ? count < other.count : key > other.key; }
};

class Trainer {
 public:
  Trainer(const std::vector<CountedWord>& words, TrainedBpe& trained) : trained_(trained) {
    std::array<int32_t, 256> byte_ids{};
    AddFirstTokens(byte_ids);
    size_t symbols = 0;
    for (const CountedWord& word : words) symbols += word.text.size();
    symbols_.reserve(symbols);
    for (const CountedWord& word : words) {
      words_.push_back({static_cast<uint32_t>(symbols_.size()), static_cast<uint32_t>(word.text.size()), word.count});
      for (char byte : word.text) symbols_.push_back(byte_ids[static_cast<unsigned char>(byte)]);
    }
  }

  void Run() {
    CountPairs();
    const auto wanted = static_cast<size_t>(trained_.options.vocabulary_size);
    while (trained_.tokens.size() < wanted && !heap_.empty()) {
      const Candidate best = heap_.top();
      heap_.pop();
      const auto found = pairs_.find(best.key);
      if (found == pairs_.end()) continue;
      if (found->second.count != best.count) {  // it has lost some since: back to its place
        if (found->second.count > 0) heap_.push({found->second.count, best.key});
        continue;
      }
      if (best.count < std::max<int64_t>(1, trained_.options.min_frequency)) break;
      const std::vector<uint32_t> holders = std::move(found->second.words);
      pairs_.erase(found);
      MergePair(best.key, holders);
    }
    for (const Word& word : words_) trained_.ids += word.count * word.length;
  }

 private:
  struct Word {
    uint32_t begin, length;  // in symbols_
    int64_t count;
  };

  // Special tokens, then the bytes in the order of their characters, as the reference trainer numbers them.
  void AddFirstTokens(std::array<int32_t, 256>& byte_ids) {
    trained_.tokens = trained_.options.special_tokens;
    std::array<int, 256> order{};
    for (int byte = 0; byte < 256; ++byte) order[static_cast<size_t>(byte)] = byte;
    const auto& chars = ByteChars256();
    std::sort(order.begin(), order.end(),
              [&](int a, int b) { return chars[static_cast<size_t>(a)] < chars[static_cast<size_t>(b)]; });
    for (int byte : order) {
      byte_ids[static_cast<size_t>(byte)] = static_cast<int32_t>(trained_.tokens.size());
      by_text_.emplace(std::string(1, static_cast<char>(byte)), trained_.tokens.size());
      trained_.tokens.emplace_back(1, static_cast<char>(byte));
    }
  }

  void CountPairs() {
    for (uint32_t index = 0; index < words_.size(); ++index) {
      const Word& word = words_[index];
      for (uint32_t i = 0; i + 1 < word.length; ++i) {
        Add(Key(symbols_[word.begin + i], symbols_[word.begin + i + 1]), word.count, index);
      }
    }
    for (const auto& [key, entry] : pairs_) heap_.push({entry.count, key});
  }

  void Add(uint64_t key, int64_t count, uint32_t word) {
    PairEntry& entry = pairs_[key];
    entry.count += count;
    if (entry.words.empty() || entry.words.back() != word) entry.words.push_back(word);
  }

  void Remove(uint64_t key, int64_t count) {
    const auto found = pairs_.find(key);
    if (found == pairs_.end()) return;  // the pair that is being merged
    found->second.count -= count;
    if (found->second.count <= 0) pairs_.erase(found);
  }

  // Another merge may have made the same text before: it keeps its id. A text that is spelled like a special token gets
  // none: that stays out of plain text.
  std::optional<int32_t> IdOf(uint64_t key) {
    std::string text =
        trained_.tokens[static_cast<size_t>(Left(key))] + trained_.tokens[static_cast<size_t>(Right(key))];
    const std::vector<std::string>& special = trained_.options.special_tokens;
    if (std::find(special.begin(), special.end(), BytesToChars(text)) != special.end()) return std::nullopt;
    const auto [place, is_new] = by_text_.emplace(std::move(text), trained_.tokens.size());
    if (is_new) trained_.tokens.push_back(place->first);
    return static_cast<int32_t>(place->second);
  }

  void MergePair(uint64_t key, const std::vector<uint32_t>& holders) {
    const std::optional<int32_t> merged = IdOf(key);
    if (!merged) return;
    trained_.merges.emplace_back(Left(key), Right(key));
    touched_.clear();
    for (uint32_t index : holders) MergeInWord(index, Left(key), Right(key), *merged);
    std::sort(touched_.begin(), touched_.end());
    touched_.erase(std::unique(touched_.begin(), touched_.end()), touched_.end());
    for (uint64_t one : touched_) {
      const auto found = pairs_.find(one);
      if (found != pairs_.end()) heap_.push({found->second.count, one});
    }
  }

  void MergeInWord(uint32_t index, int32_t left, int32_t right, int32_t merged) {
    Word& word = words_[index];
    int32_t* const at = symbols_.data() + word.begin;
    uint32_t out = 0;
    for (uint32_t in = 0; in < word.length; ++in, ++out) {
      if (at[in] != left || in + 1 == word.length || at[in + 1] != right) {
        at[out] = at[in];
        continue;
      }
      if (out > 0) {
        Remove(Key(at[out - 1], left), word.count);
        Join(at[out - 1], merged, word.count, index);
      }
      if (in + 2 < word.length) {
        Remove(Key(right, at[in + 2]), word.count);
        Join(merged, at[in + 2], word.count, index);
      }
      at[out] = merged;
      ++in;
    }
    word.length = out;
  }

  void Join(int32_t left, int32_t right, int64_t count, uint32_t word) {
    const uint64_t key = Key(left, right);
    Add(key, count, word);
    touched_.push_back(key);
  }

  TrainedBpe& trained_;
  std::vector<Word> words_;
  std::vector<int32_t> symbols_;
  std::unordered_map<uint64_t, PairEntry, KeyHash> pairs_;
  std::priority_queue<Candidate> heap_;
  std::unordered_map<std::string, size_t> by_text_;
  std::vector<uint64_t> touched_;
};

void CheckOptions(const BpeTrainerOptions& options) {
  std::vector<std::string> names = options.special_tokens;
  std::sort(names.begin(), names.end());
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty() || !IsValidUtf8(names[i])) ThrowUsage("special_tokens: one is empty or not UTF-8");
    if (CountChars(names[i]) == 1) ThrowUsage("special_tokens: '{}' is a single character", names[i]);
    if (i > 0 && names[i] == names[i - 1]) ThrowUsage("special_tokens: '{}' comes twice", names[i]);
  }
  const int64_t least = 256 + static_cast<int64_t>(names.size());
  if (options.vocabulary_size < least || options.vocabulary_size > kMaxVocabulary) {
    throw Error(
        ErrorCode::kUsage, fmt::format("vocab_size={} is out of range", options.vocabulary_size),
        fmt::format("expected {} (256 bytes and {} special tokens) to {}", least, names.size(), kMaxVocabulary));
  }
}

}  // namespace

TrainedBpe TrainBpe(std::span<const std::string_view> texts, const BpeTrainerOptions& options, ThreadPool& pool) {
  CheckOptions(options);
  TrainedBpe trained;
  trained.options = options;
  const std::vector<CountedWord> words = CountWords(texts, options.pattern, pool);
  for (const CountedWord& word : words) {
    trained.words += word.count;
    trained.bytes += word.count * static_cast<int64_t>(word.text.size());
  }
  trained.different_words = static_cast<int64_t>(words.size());
  if (words.empty()) throw Error(ErrorCode::kUsage, "the training text is empty", "give files with text in them");
  Trainer(words, trained).Run();
  return trained;
}

}  // namespace octavo::text
