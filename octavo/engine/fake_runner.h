// A Runner for tests: logits are a hash of the tokens so far, pages are counted as the real one counts them. It checks
// its caller: more pages than there are, tokens past the context or a closed sequence end the test.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/engine/runner.h"

namespace octavo::engine {

struct FakeRunnerOptions {
  int64_t vocabulary = 258, context = 256, page_tokens = 4, pages = 1000;
  bool prefix_cache = true;
  int32_t eos = 257;        // likely about every 16th token
  int32_t nan_token = -1;   // a sequence that holds it has NaN logits
  int32_t bomb_token = -1;  // running it is an error of the whole step
  int32_t shut_token = -1;  // a prompt that holds it cannot be opened
};

class FakeRunner : public Runner {
 public:
  explicit FakeRunner(const FakeRunnerOptions& options = {}) : options_(options) {}

  int64_t vocabulary_size() const override { return options_.vocabulary; }
  int64_t context_length() const override { return options_.context; }
  int64_t page_tokens() const override { return options_.page_tokens; }
  int64_t pages() const override { return options_.pages; }
  int64_t free_pages() const override {
    int64_t idle = 0;
    for (const auto& [key, page] : known_) idle += page.use_count() == 1 ? 1 : 0;
    return options_.pages - *used_ + idle;
  }

  SequenceId Open(std::span<const int32_t> prompt, int adapter, const std::string& scope, int64_t* cached) override {
    if (std::ranges::find(prompt, options_.shut_token) != prompt.end()) ThrowUsage("shut");
    Sequence sequence;
    sequence.root = std::to_string(adapter) + "/" + scope;
    sequence.hash = Mix(0, adapter);
    *cached = 0;
    std::vector<int32_t> prefix;
    while (options_.prefix_cache && std::ssize(prefix) + options_.page_tokens < std::ssize(prompt)) {
      std::vector<int32_t> longer(prompt.begin(), prompt.begin() + std::ssize(prefix) + options_.page_tokens);
      const auto at = known_.find({sequence.root, longer});
      if (at == known_.end()) break;
      prefix = longer;
      sequence.pages.push_back(at->second);
    }
    *cached = std::ssize(prefix);
    for (const int32_t token : prefix) Push(sequence, token);
    sequences_[++last_] = std::move(sequence);
    return last_;
  }
  SequenceId Fork(SequenceId from) override {
    sequences_[++last_] = sequences_.at(from);
    return last_;
  }
  void Close(SequenceId id) override { ASSERT_EQ(sequences_.erase(id), 1u) << "closed twice"; }
  int64_t length(SequenceId id) const override { return std::ssize(sequences_.at(id).tokens); }
  int64_t PagesFor(SequenceId id, int64_t tokens) const override {
    const Sequence& sequence = sequences_.at(id);
    const int64_t length = std::ssize(sequence.tokens);
    const int64_t after = (length + tokens + options_.page_tokens - 1) / options_.page_tokens;
    const bool copies = length % options_.page_tokens != 0 && sequence.pages.back().use_count() > 1;
    return after - std::ssize(sequence.pages) + (copies ? 1 : 0);
  }

  Tensor Step(std::span<const Work> work) override {
    int64_t rows = 0, tokens = 0;
    for (const Work& one : work) {
      for (const int32_t token : one.tokens) {
        if (token == options_.bomb_token) ThrowUsage("boom");
      }
      rows += one.all_logits ? std::ssize(one.tokens) : one.last_logits ? 1 : 0;
      tokens += std::ssize(one.tokens);
    }
    largest_step = std::max(largest_step, tokens);
    most_sequences = std::max(most_sequences, std::ssize(work));
    most_rows = std::max(most_rows, rows);
    tokens_run += tokens;
    ++steps;
    Tensor logits = Tensor::Empty({rows, options_.vocabulary}, DType::kF32);
    float* row = logits.MutableData<float>();
    for (const Work& one : work) {
      Sequence& sequence = sequences_.at(one.sequence);
      for (size_t i = 0; i < one.tokens.size(); ++i) {
        Grow(sequence);
        Push(sequence, one.tokens[i]);
        Remember(sequence);
        const bool wanted = one.all_logits || (one.last_logits && i + 1 == one.tokens.size());
        if (!wanted) continue;
        const std::vector<float> values = Logits(sequence.tokens, sequence.hash);
        row = std::copy(values.begin(), values.end(), row);
      }
    }
    return logits;
  }

  // What the runner gives after these tokens of the base model.
  std::vector<float> LogitsAfter(std::span<const int32_t> tokens) const {
    Sequence sequence;
    sequence.hash = Mix(0, 0);
    for (const int32_t token : tokens) Push(sequence, token);
    return Logits(sequence.tokens, sequence.hash);
  }
  size_t open_sequences() const { return sequences_.size(); }
  int64_t largest_step = 0, most_sequences = 0, most_rows = 0, tokens_run = 0, steps = 0;

 private:
  using Page = std::shared_ptr<void>;  // counts itself in used_
  struct Sequence {
    std::string root;
    std::vector<int32_t> tokens;
    std::vector<Page> pages;
    uint64_t hash = 0;
  };

  static uint64_t Mix(uint64_t hash, int64_t value) {
    hash = (hash ^ static_cast<uint64_t>(value)) * 0x9E3779B97F4A7C15u + 0x632BE59BD9B4E019u;
    return hash ^ (hash >> 29);
  }
  static void Push(Sequence& sequence, int32_t token) {
    sequence.tokens.push_back(token);
    sequence.hash = Mix(sequence.hash, token);
  }
  std::vector<float> Logits(const std::vector<int32_t>& tokens, uint64_t hash) const {
    std::vector<float> logits(static_cast<size_t>(options_.vocabulary));
    for (size_t v = 0; v < logits.size(); ++v) {
      logits[v] = static_cast<float>(Mix(hash, static_cast<int64_t>(v)) % 6000) / 1000 - 3;
    }
    if (options_.eos >= 0 && hash % 16 == 0) logits[static_cast<size_t>(options_.eos)] = 9;
    if (std::ranges::find(tokens, options_.nan_token) != tokens.end())
      logits[7] = std::numeric_limits<float>::quiet_NaN();
    return logits;
  }
  void Grow(Sequence& sequence) {
    const bool begins = std::ssize(sequence.tokens) % options_.page_tokens == 0;
    if (!begins && sequence.pages.back().use_count() == 1) return;
    if (*used_ == options_.pages) {
      // As the real one: the end of a prompt is forgotten before its beginning.
      const auto idle =
          std::find_if(known_.rbegin(), known_.rend(), [](const auto& entry) { return entry.second.use_count() == 1; });
      ASSERT_NE(idle, known_.rend()) << "more pages than there are";
      known_.erase(std::prev(idle.base()));
    }
    ASSERT_LT(std::ssize(sequence.tokens), options_.context);
    ++*used_;
    Page page(nullptr, [used = used_](void*) { --*used; });
    if (begins) {
      sequence.pages.push_back(std::move(page));
    } else {
      sequence.pages.back() = std::move(page);
    }
  }
  void Remember(const Sequence& sequence) {
    if (!options_.prefix_cache || std::ssize(sequence.tokens) % options_.page_tokens != 0) return;
    known_.try_emplace({sequence.root, sequence.tokens}, sequence.pages.back());
  }

  FakeRunnerOptions options_;
  std::shared_ptr<int64_t> used_ = std::make_shared<int64_t>(0);
  std::map<std::pair<std::string, std::vector<int32_t>>, Page> known_;
  std::map<SequenceId, Sequence> sequences_;
  SequenceId last_ = 0;
};

}  // namespace octavo::engine
