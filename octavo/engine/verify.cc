#include "octavo/engine/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "octavo/base/digest.h"
#include "octavo/base/rng.h"
#include "octavo/ops/tape.h"

namespace octavo::engine {
namespace {

constexpr int64_t kPage = ops::kPageTokens;

// What is kept of the logits of one prompt as they come: a digest of each row, so that any tail of it can be hashed and
// long prompts over large vocabularies take no memory.
struct Collected {
  std::string digests;
  int64_t first = 0;  // position of the first row

  void Add(const Tensor& logits, int64_t begin, int64_t count) {
    const Tensor part = logits.Slice(0, begin, begin + count).Contiguous();
    const auto bytes = std::as_bytes(part.Values<float>());
    const size_t width = bytes.size() / static_cast<size_t>(count);
    for (size_t row = 0; row < static_cast<size_t>(count); ++row) {
      digests += DigestHex(bytes.subspan(row * width, width));
    }
  }
  // Of the rows from position `from` on, which is `first` or later.
  std::string Hash(int64_t from) const {
    const size_t skip = kDigits * static_cast<size_t>(from - first);
    return DigestHex(std::as_bytes(std::span(digests).subspan(skip))).substr(0, 12);
  }

  static constexpr size_t kDigits = 32;  // of one row
};

using Prompts = std::vector<std::vector<int32_t>>;

Prompts MakePrompts(const VerifyOptions& options, int64_t vocabulary, int64_t context) {
  Prompts prompts(static_cast<size_t>(options.prompts));
  const RngKey key = RngKey::FromSeed(options.seed);
  for (size_t p = 0; p < prompts.size(); ++p) {
    const int64_t length = std::min(options.tokens + static_cast<int64_t>(p), context);
    const RngKey own = key.FoldIn(static_cast<uint32_t>(p));
    for (int64_t i = 0; i < length; ++i) {
      const uint64_t bits = own.Bits32(static_cast<uint64_t>(i));
      prompts[p].push_back(static_cast<int32_t>(bits % static_cast<uint64_t>(vocabulary)));
    }
  }
  return prompts;
}

// Groups of `batch` prompts through one runner, in steps that mix pieces of different lengths: every second sequence
// takes the chunk, the others one token at a time or another odd length. Slots go to prompts in the order given.
std::vector<Collected> RunGroups(Runner& runner, const Prompts& prompts, const std::vector<size_t>& order, int batch,
                                 int64_t chunk) {
  std::vector<Collected> result(prompts.size());
  for (size_t begin = 0; begin < order.size(); begin += static_cast<size_t>(batch)) {
    const size_t end = std::min(order.size(), begin + static_cast<size_t>(batch));
    std::vector<SequenceId> ids;
    for (size_t i = begin; i < end; ++i) {
      ids.push_back(runner.Open(prompts[order[i]], 0, "", &result[order[i]].first));
    }
    while (true) {
      std::vector<Work> work;
      std::vector<size_t> owner;
      for (size_t i = begin; i < end; ++i) {
        const std::vector<int32_t>& prompt = prompts[order[i]];
        const int64_t at = runner.length(ids[i - begin]), left = static_cast<int64_t>(prompt.size()) - at;
        const int64_t piece = chunk == 0 ? left : (i - begin) % 2 == 0 ? chunk : chunk / 2 + 1;
        if (left == 0) continue;
        work.push_back({ids[i - begin],
                        std::span(prompt).subspan(static_cast<size_t>(at), static_cast<size_t>(std::min(left, piece))),
                        true});
        owner.push_back(order[i]);
      }
      if (work.empty()) break;
      const Tensor logits = runner.Step(work);
      int64_t row = 0;
      for (size_t w = 0; w < work.size(); ++w) {
        const auto count = static_cast<int64_t>(work[w].tokens.size());
        result[owner[w]].Add(logits, row, count);
        row += count;
      }
    }
    for (SequenceId id : ids) runner.Close(id);
  }
  return result;
}

Collected RunTrainer(const VerifyModel& trained, const VerifyOptions& options, const std::vector<int32_t>& prompt) {
  ThreadPool pool(2);
  kernels::Workspace workspace;
  ops::Context context(pool, options.isa, workspace);
  ops::Tape tape;  // as in a step: ops and dots take the way that leaves what a backward pass needs
  context.tape = &tape;
  WithKvFormat stored(trained.interceptor, options.kv);
  context.interceptor = &stored;
  context.state = trained.state;
  const auto length = static_cast<int64_t>(prompt.size());
  const Tensor tokens = Tensor::FromValues<int32_t>({1, length}, DType::kI32, prompt);
  const ops::Var hidden = models::Forward(context, trained.model, tokens, ops::RowsOfShape(1, length));
  Collected result;
  result.Add(trained.model.Logits(context, hidden).value.Reshape({length, trained.model.config().vocab_size}), 0,
             length);
  return result;
}

// Tokens of a prompt that the prefix cache may hold: whole pages, and never all of it.
int64_t CachedAtMost(const std::vector<int32_t>& prompt) {
  return prompt.empty() ? 0 : (static_cast<int64_t>(prompt.size()) - 1) / kPage * kPage;
}

class Comparison {
 public:
  explicit Comparison(const std::function<void(const VerifyRow&)>& on_row) : on_row_(on_row) {}

  void Add(std::string what, const std::vector<Collected>& logits) { Add(std::move(what), logits, nullptr); }

  // The same for prompts that this runner ran before: a cache that forgot one would prove nothing.
  void AddHits(std::string what, const std::vector<Collected>& logits, const Prompts& prompts) {
    for (const Collected& one : logits) report_.cached += one.first;
    Add(std::move(what), logits, &prompts);
  }

  VerifyReport Finish() { return std::move(report_); }

 private:
  void Add(std::string what, const std::vector<Collected>& logits, const Prompts* cached) {
    VerifyRow row{std::move(what), {}, {}, {}};
    if (report_.rows.empty()) reference_ = logits;
    for (size_t p = 0; p < logits.size(); ++p) {
      const int64_t first = logits[p].first, due = cached == nullptr ? first : CachedAtMost((*cached)[p]);
      row.from.push_back(first);
      row.hashes.push_back(logits[p].Hash(first));
      row.expected.push_back(reference_[p].Hash(due));
      if (row.hashes[p] == row.expected[p]) continue;
      std::string text = fmt::format("{}: prompt {}", row.what, p);
      if (first != due) text += fmt::format(" found {} of its tokens in the cache, expected {}", first, due);
      report_.different.push_back(std::move(text));
    }
    if (on_row_) on_row_(row);
    report_.rows.push_back(std::move(row));
  }

  const std::function<void(const VerifyRow&)>& on_row_;
  std::vector<Collected> reference_;
  VerifyReport report_;
};

}  // namespace

VerifyReport Verify(const VerifyModel& served, const VerifyModel* trained, const VerifyOptions& options,
                    const std::function<void(const VerifyRow&)>& on_row) {
  const models::ModelConfig& config = served.model.config();
  const Prompts prompts = MakePrompts(options, config.vocab_size, config.max_target_length);
  const auto longest = static_cast<int64_t>(prompts.back().size());
  std::vector<size_t> order(prompts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  Comparison comparison(on_row);
  const auto make = [&](ThreadPool& pool, bool prefix_cache) {
    RunnerOptions how;
    how.context_length = longest;
    how.kv = options.kv;
    how.sequences = std::max<int64_t>(8, options.prompts);
    how.prefix_cache = prefix_cache;
    return MakeRunner({served.model, served.interceptor, served.state, pool, options.isa}, how);
  };
  {
    ThreadPool pool(1);
    comparison.Add("threads 1, batch 1, chunk all", RunGroups(*make(pool, false), prompts, order, 1, 0));
  }
  for (int threads : options.threads) {
    ThreadPool pool(threads);
    for (int batch : options.batches) {
      for (int64_t chunk : options.chunks) {
        if (threads == 1 && batch == 1 && chunk == 0) continue;
        comparison.Add(fmt::format("threads {}, batch {}, chunk {}", threads, batch,
                                   chunk == 0 ? std::string("all") : std::to_string(chunk)),
                       RunGroups(*make(pool, false), prompts, order, batch, chunk));
      }
    }
  }
  ThreadPool pool(2);
  std::vector<size_t> reversed(order.rbegin(), order.rend());
  const int most = *std::max_element(options.batches.begin(), options.batches.end());
  comparison.Add("other slots", RunGroups(*make(pool, false), prompts, reversed, most, 7));
  {
    const auto runner = make(pool, true);
    comparison.Add("prefix cache miss", RunGroups(*runner, prompts, order, most, 64));
    comparison.AddHits("prefix cache hit", RunGroups(*runner, prompts, reversed, most, 7), prompts);
  }
  {
    // A part of each prompt, then everything again in other pages.
    const auto runner = make(pool, false);
    Prompts parts = prompts;
    for (auto& part : parts) part.resize(part.size() / 2 + 1);
    RunGroups(*runner, parts, order, most, 7);
    comparison.Add("preempted", RunGroups(*runner, prompts, order, most, 64));
  }
  if (trained != nullptr) {
    std::vector<Collected> logits;
    for (const auto& prompt : prompts) logits.push_back(RunTrainer(*trained, options, prompt));
    comparison.Add("trainer's forward", logits);
  }
  return comparison.Finish();
}

std::string VerifyTable(const VerifyReport& report, const VerifyOptions& options) {
  std::string text = fmt::format("{:<32}", "");
  for (int p = 0; p < options.prompts; ++p) text += fmt::format("{:<14}", fmt::format("prompt {}", p));
  text += "\n";
  for (const VerifyRow& row : report.rows) {
    text += fmt::format("{:<32}", row.what);
    for (size_t p = 0; p < row.hashes.size(); ++p) {
      text += fmt::format("{:<14}", row.hashes[p] + (row.hashes[p] == row.expected[p] ? "" : "!"));
    }
    const auto [least, most] = std::minmax_element(row.from.begin(), row.from.end());
    if (*most > 0) {
      text += *least == *most ? fmt::format("from token {} on", *most)
                              : fmt::format("from tokens {} on", fmt::join(row.from, ", "));
    }
    text += "\n";
  }
  if (report.cached == 0) {
    text += fmt::format("no prompt is longer than a page of {} tokens: the prefix cache held none of them\n", kPage);
  }
  const size_t count = report.rows.size() * static_cast<size_t>(options.prompts);
  text += report.equal() ? fmt::format("all {} hashes are equal\n", count)
                         : fmt::format("{} of {} hashes differ (marked !)\n", report.different.size(), count);
  return text;
}

}  // namespace octavo::engine
