#include "octavo/text/bpe_trainer_words.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <unordered_map>

#include "octavo/base/error.h"
#include "octavo/text/bpe_trainer.h"
#include "octavo/text/pretokenizer_scan.h"
#include "octavo/text/tokenizer_vocab.h"
#include "octavo/text/unicode.h"

namespace octavo::text {
namespace {

constexpr size_t kChunk = size_t{1} << 20;

struct Named {
  std::string_view name, pattern;
};
constexpr Named kPatterns[] = {
    {"gpt2", kGpt2Pattern}, {"llama3", kLlama3Pattern}, {"qwen2", kQwen2Pattern}, {"o200k", kO200kPattern}};

// A stretch of a text that begins where a word begins. Its last word may look ahead into what follows.
struct Chunk {
  const char *begin, *end, *text_end;
};

struct WordHash {
  size_t operator()(std::string_view word) const { return HashBytes(word.data(), word.size()); }
};
using Counts = std::unordered_map<std::string_view, int64_t, WordHash>;

// Whatever the pattern, a line that does not begin with white space begins a word.
std::vector<Chunk> CutIntoChunks(std::string_view text) {
  std::vector<Chunk> chunks;
  const char* const text_end = text.data() + text.size();
  size_t begin = 0;
  while (begin < text.size()) {
    size_t end = begin + kChunk;
    while (end < text.size()) {
      end = text.find('\n', end);
      if (end == std::string_view::npos) break;
      ++end;
      const auto next = end < text.size() ? static_cast<unsigned char>(text[end]) : 0;
      if (next > ' ' && next < 0x7F) break;
    }
    end = std::min(end, text.size());
    chunks.push_back({text.data() + begin, text.data() + end, text_end});
    begin = end;
  }
  return chunks;
}

void CountChunk(const Chunk& chunk, WordScanner scanner, Counts& counts) {
  const CharClasses& classes = CharClasses::Table();
  for (const char* at = chunk.begin; at < chunk.end;) {
    const char* next = scanner(classes, at, chunk.text_end);
    ++counts[std::string_view(at, static_cast<size_t>(next - at))];
    at = next;
  }
}

}  // namespace

std::vector<std::string_view> TrainerPatterns() {
  std::vector<std::string_view> names;
  for (const Named& one : kPatterns) names.push_back(one.name);
  return names;
}

std::string_view TrainerPattern(std::string_view name) {
  for (const Named& one : kPatterns) {
    if (one.name == name) return one.pattern;
  }
  throw Error(ErrorCode::kUsage, fmt::format("pattern='{}' is not known", name.substr(0, 60)),
              fmt::format("known: {}", fmt::join(TrainerPatterns(), " ")));
}

std::vector<CountedWord> CountWords(std::span<const std::string_view> texts, std::string_view pattern,
                                    ThreadPool& pool) {
  const WordScanner scanner = FindWordScanner(TrainerPattern(pattern));
  std::deque<std::string> repaired;  // owns what is not as given
  std::vector<Chunk> chunks;
  for (std::string_view text : texts) {
    if (!IsValidUtf8(text)) text = repaired.emplace_back(ReplaceInvalidUtf8(text));
    const std::vector<Chunk> more = CutIntoChunks(text);
    chunks.insert(chunks.end(), more.begin(), more.end());
  }
  std::vector<Counts> counts(static_cast<size_t>(pool.size()));
  std::atomic<size_t> next = 0;
  pool.Run([&](int worker, int) {
    for (size_t i = next++; i < chunks.size(); i = next++)
      CountChunk(chunks[i], scanner, counts[static_cast<size_t>(worker)]);
  });
  Counts& all = counts[0];
  for (size_t i = 1; i < counts.size(); ++i) {
    for (const auto& [word, count] : counts[i]) all[word] += count;
    counts[i].clear();
  }
  std::vector<CountedWord> words;
  words.reserve(all.size());
  for (const auto& [word, count] : all) words.push_back({std::string(word), count});
  std::sort(words.begin(), words.end(), [](const CountedWord& a, const CountedWord& b) { return a.text < b.text; });
  return words;
}

}  // namespace octavo::text
