#include "bench/tokenizer_runs.h"

#include <fmt/format.h>
#include <time.h>

#include <random>

#include "octavo/text/bpe_trainer.h"
#include "octavo/text/gguf_vocab.h"
#include "octavo/text/gguf_vocab_pre.h"
#include "octavo/text/tokenizer_bytechars.h"
#include "octavo/text/unicode.h"

namespace octavo::bench {
namespace {

double ProcessorSeconds() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// A vocabulary with tokens for runs, so that merging has work to do.
text::TrainedBpe TrainOnRuns() {
  std::string runs;
  for (const char* unit : {"a", " ", "\n", "1", "!", "'", "-", "\xE6\x97\xA5", "\xC3\xA9", "\xF0\x9F\x9A\x80"}) {
    for (int length = 1; length < 70; ++length) {
      for (int i = 0; i < length; ++i) runs += unit;
      runs += "x";
    }
  }
  text::BpeTrainerOptions options;
  options.vocabulary_size = 512;
  options.special_tokens = {};
  ThreadPool pool(1);
  const std::string_view texts[] = {runs};
  return text::TrainBpe(texts, options, pool);
}

}  // namespace

double TimeEqualCharacters(bool json) {
  const text::TrainedBpe trained = TrainOnRuns();
  text::GgufVocabulary gguf;
  gguf.model = "gpt2";
  for (const std::string& token : trained.tokens) gguf.tokens.push_back(text::BytesToChars(token));
  for (const auto& [left, right] : trained.merges) {
    gguf.merges.push_back(gguf.tokens[static_cast<size_t>(left)] + " " + gguf.tokens[static_cast<size_t>(right)]);
  }
  double slowest = 0;
  for (const std::string& pre : text::GgufPreNames()) {
    gguf.pre = pre;
    const auto tokenizer = text::MakeGgufTokenizer(gguf, pre);
    double worst = 0;
    std::string of;
    for (const char* unit : {"a", "A", " ", "\t", "\n", "\r", "1", "!", "'", "-", "_", "\xE6\x97\xA5", "\xC3\xA9",
                             "\xCC\x81", "\xF0\x9F\x9A\x80", "\xC2\xA0", "\xE3\x80\x80"}) {
      std::string text;
      for (int i = 0; i < 1000000; ++i) text += unit;
      const double start = ProcessorSeconds();
      const std::vector<int32_t> ids = tokenizer->Encode(text);
      const double seconds = ProcessorSeconds() - start;
      if (tokenizer->Decode(ids) != text) fmt::print(stderr, "wrong: {} does not give back a run\n", pre);
      if (seconds > worst) {
        worst = seconds;
        const char* p = unit;
        of = fmt::format("U+{:04X}", static_cast<uint32_t>(text::NextChar(p)));
      }
    }
    slowest = std::max(slowest, worst);
    if (json) {
      fmt::print("{{\"event\":\"run\",\"pattern\":\"{}\",\"seconds\":{:.4f},\"character\":\"{}\"}}\n", pre, worst, of);
    } else {
      fmt::print("10^6 equal characters   {:<16} slowest {:.3f} s ({})\n", pre, worst, of);
    }
  }
  return slowest;
}

int64_t CountRoundTripFailures(const text::Tokenizer& tokenizer, int64_t count, uint64_t seed) {
  std::mt19937_64 engine(seed);
  const std::string_view parts[] = {"a",  "the", " ",    "\n", "\r\n",       "'s", "12",
                                    "!?", "é",   "日本", "🚀",  "<|im_end|>", "_",  "\t"};
  int64_t failures = 0;
  for (int64_t i = 0; i < count; ++i) {
    std::string text;
    for (uint64_t left = 1 + engine() % 8; left > 0; --left) {
      const uint64_t repeats = engine() % 8 == 0 ? 1 + engine() % 40 : 1;
      const auto any = static_cast<char32_t>(engine() % (engine() % 2 == 0 ? 0x3000 : 0x110000));
      for (uint64_t r = 0; r < repeats; ++r) {
        if (left % 2 == 0 || (any >= 0xD800 && any < 0xE000)) {
          text += parts[engine() % std::size(parts)];
        } else {
          text::AppendUtf8(any, text);
        }
      }
    }
    failures += tokenizer.Decode(tokenizer.Encode(text)) != text;
  }
  return failures;
}

}  // namespace octavo::bench
