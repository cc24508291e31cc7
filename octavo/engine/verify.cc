#include "octavo/engine/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "octavo/base/digest.h"
#include "octavo/base/rng.h"

namespace octavo::engine {
namespace {

constexpr int64_t kPage = ops::kPageTokens;

// The logits of one prompt as they come, and their hashes.
struct Collected {
  std::vector<float> rows;
  int64_t first = 0;  // position of the first row

  void Add(const Tensor& logits, int64_t begin, int64_t count) {
    const Tensor part = logits.Slice(0, begin, begin + count).Contiguous();
    const auto values = part.Values<float>();
    rows.insert(rows.end(), values.begin(), values.end());
  }
  std::string Hash(int64_t from, int64_t vocabulary) const {
    const auto skip = static_cast<size_t>((from - first) * vocabulary);
    return DigestHex(std::as_bytes(std::span(rows).subspan(skip))).substr(0, 12);
  }
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

class Comparison {
 public:
  Comparison(const VerifyOptions& options, int64_t vocabulary, const std::function<void(const VerifyRow&)>& on_row)
      : options_(options), vocabulary_(vocabulary), on_row_(on_row) {}

  void Add(std::string what, const std::vector<Collected>& logits) {
    VerifyRow row{std::move(what), {}, false};
    row.tail_only = logits.front().first > 0;
    const bool reference = report_.rows.empty();
    for (size_t p = 0; p < logits.size(); ++p) {
      row.hashes.push_back(logits[p].Hash(row.tail_only ? kPage : 0, vocabulary_));
      if (reference) report_.tail.push_back(HasTail() ? logits[p].Hash(kPage, vocabulary_) : "");
      const std::string& expected = reference       ? row.hashes[p]
                                    : row.tail_only ? report_.tail[p]
                                                    : report_.rows[0].hashes[p];
      if (row.hashes[p] != expected) report_.different.push_back(fmt::format("{}: prompt {}", row.what, p));
    }
    if (on_row_) on_row_(row);
    report_.rows.push_back(std::move(row));
  }
  bool HasTail() const { return options_.tokens > kPage; }
  VerifyReport Finish() { return std::move(report_); }

 private:
  const VerifyOptions& options_;
  int64_t vocabulary_;
  const std::function<void(const VerifyRow&)>& on_row_;
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
  Comparison comparison(options, config.vocab_size, on_row);
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
  if (comparison.HasTail()) {
    const auto runner = make(pool, true);
    comparison.Add("prefix cache miss", RunGroups(*runner, prompts, order, most, 64));
    comparison.Add("prefix cache hit", RunGroups(*runner, prompts, reversed, most, 7));
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
  for (size_t p = 0; p < report.tail.size(); ++p) text += fmt::format("{:<14}", fmt::format("prompt {}", p));
  text += "\n";
  for (const VerifyRow& row : report.rows) {
    text += fmt::format("{:<32}", row.what);
    for (size_t p = 0; p < row.hashes.size(); ++p) {
      const std::string& expected = row.tail_only ? report.tail[p] : report.rows[0].hashes[p];
      text += fmt::format("{:<14}", row.hashes[p] + (row.hashes[p] == expected ? "" : "!"));
    }
    text += row.tail_only ? "tokens behind the first page\n" : "\n";
  }
  const size_t count = report.rows.size() * static_cast<size_t>(options.prompts);
  text += report.equal() ? fmt::format("all {} hashes are equal\n", count)
                         : fmt::format("{} of {} hashes differ (marked !)\n", report.different.size(), count);
  return text;
}

}  // namespace octavo::engine
