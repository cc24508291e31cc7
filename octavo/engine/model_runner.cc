#include "octavo/engine/model_runner.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/engine/kv_memory.h"
#include "octavo/engine/page_pool.h"
#include "octavo/ops/rows.h"

namespace octavo::engine {
namespace {

constexpr int64_t kPage = ops::kPageTokens;

int64_t PagesOf(int64_t tokens) { return (tokens + kPage - 1) / kPage; }

struct SequenceState {
  std::vector<int32_t> tokens;  // that were run or shared
  std::vector<int32_t> pages;
  PagePool::Node node = 0;  // of the last full page that is known
  int adapter = 0;
  std::string root;

  int64_t length() const { return static_cast<int64_t>(tokens.size()); }
  int64_t full_pages() const { return length() / kPage; }
};

// What one step runs: the rows of all its work, and those whose logits are wanted.
struct Batch {
  std::vector<int32_t> tokens;
  std::vector<int64_t> wanted;
  ops::Rows rows;
};

class ModelRunner : public Runner {
 public:
  ModelRunner(const RunnerParts& parts, const RunnerOptions& options, const std::vector<KvSite>& sites, int64_t context,
              int64_t pages)
      : parts_(parts),
        prefix_cache_(options.prefix_cache),
        context_length_(context),
        memory_(sites, options.kv, pages),
        pool_(pages) {}

  int64_t vocabulary_size() const override { return parts_.model.config().vocab_size; }
  int64_t context_length() const override { return context_length_; }
  int64_t page_tokens() const override { return kPage; }
  int64_t pages() const override { return pool_.size(); }
  int64_t free_pages() const override { return pool_.available(); }

  SequenceId Open(std::span<const int32_t> prompt, int adapter, const std::string& scope, int64_t* cached) override;
  SequenceId Fork(SequenceId from) override;
  void Close(SequenceId sequence) override;
  int64_t length(SequenceId sequence) const override { return At(sequence).length(); }
  int64_t PagesFor(SequenceId sequence, int64_t tokens) const override;
  Tensor Step(std::span<const Work> work) override;

 private:
  const SequenceState& At(SequenceId id) const;
  SequenceState& At(SequenceId id) { return const_cast<SequenceState&>(std::as_const(*this).At(id)); }
  void Check(std::span<const Work> work) const;
  void Grow(SequenceState& sequence, int64_t tokens);
  Batch Gather(std::span<const Work> work);
  Tensor Run(const Batch& batch);
  void Append(SequenceState& sequence, std::span<const int32_t> tokens);

  RunnerParts parts_;
  bool prefix_cache_;
  int64_t context_length_;
  KvMemory memory_;
  PagePool pool_;
  kernels::Workspace workspace_;
  std::map<SequenceId, SequenceState> sequences_;
  SequenceId next_ = 1;
};

const SequenceState& ModelRunner::At(SequenceId id) const {
  const auto at = sequences_.find(id);
  if (at == sequences_.end()) ThrowUsage("Runner: sequence {} is not open", id);
  return at->second;
}

SequenceId ModelRunner::Open(std::span<const int32_t> prompt, int adapter, const std::string& scope, int64_t* cached) {
  SequenceState sequence;
  sequence.adapter = adapter;
  sequence.root = std::to_string(adapter) + "/" + scope;
  // The last token is always run: its logits are what the prompt is for.
  const int64_t most = prompt.empty() ? 0 : (static_cast<int64_t>(prompt.size()) - 1) / kPage;
  for (int64_t i = 0; prefix_cache_ && i < most; ++i) {
    const auto tokens = prompt.subspan(static_cast<size_t>(i * kPage), static_cast<size_t>(kPage));
    const auto known = pool_.Find(sequence.node, sequence.root, tokens);
    if (!known) break;
    pool_.Share(known->page);
    sequence.pages.push_back(known->page);
    sequence.tokens.insert(sequence.tokens.end(), tokens.begin(), tokens.end());
    sequence.node = known->node;
  }
  if (cached != nullptr) *cached = sequence.length();
  sequences_.emplace(next_, std::move(sequence));
  return next_++;
}

SequenceId ModelRunner::Fork(SequenceId from) {
  SequenceState copy = At(from);
  for (int32_t page : copy.pages) pool_.Share(page);
  sequences_.emplace(next_, std::move(copy));
  return next_++;
}

void ModelRunner::Close(SequenceId id) {
  SequenceState& sequence = At(id);
  // The last first: the end of a prompt is forgotten before its beginning.
  for (auto page = sequence.pages.rbegin(); page != sequence.pages.rend(); ++page) pool_.Release(*page);
  sequences_.erase(id);
}

int64_t ModelRunner::PagesFor(SequenceId id, int64_t tokens) const {
  const SequenceState& sequence = At(id);
  const auto have = static_cast<int64_t>(sequence.pages.size());
  const bool copies = tokens > 0 && sequence.length() < have * kPage &&
                      pool_.IsShared(sequence.pages[static_cast<size_t>(sequence.length() / kPage)]);
  return std::max<int64_t>(0, PagesOf(sequence.length() + tokens) - have) + (copies ? 1 : 0);
}

void ModelRunner::Check(std::span<const Work> work) const {
  std::set<SequenceId> seen;
  int64_t pages = 0;
  for (const Work& one : work) {
    const SequenceState& sequence = At(one.sequence);
    const auto count = static_cast<int64_t>(one.tokens.size());
    if (!seen.insert(one.sequence).second) ThrowUsage("Runner: sequence {} is in one step twice", one.sequence);
    if (count == 0) ThrowUsage("Runner: sequence {} has no tokens to run", one.sequence);
    if (sequence.length() + count > context_length_) {
      ThrowUsage("Runner: sequence {} would have {} tokens, the context is {}", one.sequence, sequence.length() + count,
                 context_length_);
    }
    for (int32_t token : one.tokens) {
      if (token < 0 || token >= vocabulary_size()) {
        ThrowUsage("Runner: token {} is not in the vocabulary of {}", token, vocabulary_size());
      }
    }
    pages += PagesFor(one.sequence, count);
  }
  if (pages > pool_.available()) ThrowUsage("Runner: the step needs {} pages, {} are free", pages, pool_.available());
}

// Pages for the tokens to come. A page that others share is copied before its rest is written.
void ModelRunner::Grow(SequenceState& sequence, int64_t tokens) {
  const auto at = static_cast<size_t>(sequence.length() / kPage);
  if (at < sequence.pages.size() && pool_.IsShared(sequence.pages[at])) {
    const int32_t own = pool_.Take();
    memory_.Copy(sequence.pages[at], own);
    pool_.Release(std::exchange(sequence.pages[at], own));
  }
  while (static_cast<int64_t>(sequence.pages.size()) < PagesOf(sequence.length() + tokens)) {
    sequence.pages.push_back(pool_.Take());
  }
}

Batch ModelRunner::Gather(std::span<const Work> work) {
  Batch batch;
  std::vector<int32_t> positions;
  for (const Work& one : work) {
    SequenceState& sequence = At(one.sequence);
    const auto count = static_cast<int64_t>(one.tokens.size());
    Grow(sequence, count);
    const auto begin = static_cast<int64_t>(batch.tokens.size());
    batch.rows.sequences.push_back({begin, count, sequence.length(), sequence.pages.data()});
    for (int64_t i = 0; i < count; ++i) {
      positions.push_back(static_cast<int32_t>(sequence.length() + i));
      if (one.all_logits || (one.last_logits && i + 1 == count)) batch.wanted.push_back(begin + i);
    }
    batch.tokens.insert(batch.tokens.end(), one.tokens.begin(), one.tokens.end());
    batch.rows.adapter.insert(batch.rows.adapter.end(), static_cast<size_t>(count), sequence.adapter);
  }
  const auto rows = static_cast<int64_t>(batch.tokens.size());
  batch.rows.batch = 1;
  batch.rows.length = rows;
  batch.rows.position = Tensor::FromValues<int32_t>({rows}, DType::kI32, positions);
  batch.rows.kv = &memory_.pages();
  return batch;
}

// Rows `wanted` of [1, R, E].
Tensor TakeRows(const Tensor& hidden, const std::vector<int64_t>& wanted) {
  const Tensor packed = hidden.Contiguous();
  const auto count = static_cast<int64_t>(wanted.size());
  if (count == packed.dim(1)) return packed;
  Tensor result = Tensor::Empty({1, count, packed.dim(2)}, packed.dtype());
  const auto bytes = static_cast<size_t>(packed.bytes() / packed.dim(1));
  for (size_t i = 0; i < wanted.size(); ++i) {
    std::memcpy(result.MutableRawData() + i * bytes, packed.RawData() + static_cast<size_t>(wanted[i]) * bytes, bytes);
  }
  return result;
}

Tensor ModelRunner::Run(const Batch& batch) {
  ops::Context context(parts_.pool, parts_.isa, workspace_);
  context.interceptor = parts_.interceptor;
  context.state = parts_.state;
  context.rows = &batch.rows;
  context.StartModel();
  const Tensor tokens =
      Tensor::FromValues<int32_t>({1, static_cast<int64_t>(batch.tokens.size())}, DType::kI32, batch.tokens);
  models::Model& model = parts_.model;
  ops::Var x = model.Embed(context, tokens, batch.rows);
  for (int i = 0; i < model.layers(); ++i) x = model.Layer(context, i, x, batch.rows);
  const auto count = static_cast<int64_t>(batch.wanted.size());
  if (count == 0) return Tensor::Empty({0, vocabulary_size()}, DType::kF32);
  // Only the rows that somebody reads go through norm and head.
  ops::Rows head;
  head.batch = 1;
  head.length = count;
  std::vector<int32_t> positions;
  for (int64_t row : batch.wanted) {
    head.adapter.push_back(batch.rows.adapter[static_cast<size_t>(row)]);
    positions.push_back(batch.rows.position.Data<int32_t>()[row]);
    head.sequences.push_back({static_cast<int64_t>(head.sequences.size()), 1});
  }
  head.position = Tensor::FromValues<int32_t>({count}, DType::kI32, positions);
  context.rows = &head;
  const ops::Var hidden = model.Norm(context, ops::Var(TakeRows(x.value, batch.wanted)));
  return model.Logits(context, hidden).value.Reshape({count, vocabulary_size()});
}

// The tokens are in the cache now; pages that became full are known from here on.
void ModelRunner::Append(SequenceState& sequence, std::span<const int32_t> tokens) {
  int64_t known = sequence.full_pages();
  sequence.tokens.insert(sequence.tokens.end(), tokens.begin(), tokens.end());
  for (; prefix_cache_ && known < sequence.full_pages(); ++known) {
    const std::span<const int32_t> content(sequence.tokens.data() + known * kPage, static_cast<size_t>(kPage));
    sequence.node = pool_.Remember(sequence.node, sequence.root, content, sequence.pages[static_cast<size_t>(known)]);
  }
}

Tensor ModelRunner::Step(std::span<const Work> work) {
  Check(work);
  if (work.empty()) return Tensor::Empty({0, vocabulary_size()}, DType::kF32);
  const Batch batch = Gather(work);
  Tensor logits = Run(batch);
  for (const Work& one : work) Append(At(one.sequence), one.tokens);
  return logits;
}

}  // namespace

int64_t PageBytes(models::Model& model, const ops::KvFormat& format) { return KvPageBytesOf(KvSitesOf(model), format); }

std::unique_ptr<Runner> MakeRunner(const RunnerParts& parts, const RunnerOptions& options) {
  const int64_t most = parts.model.config().max_target_length;
  const int64_t context = options.context_length > 0 ? options.context_length : most;
  if (context < 1) ThrowUsage("Runner: a context of {} tokens", context);
  const std::vector<KvSite> sites = KvSitesOf(parts.model);
  const int64_t page_bytes = KvPageBytesOf(sites, options.kv);
  const int64_t pages = options.kv_bytes > 0 ? options.kv_bytes / page_bytes : options.sequences * PagesOf(context);
  if (pages < 1) {
    throw Error(ErrorCode::kUsage,
                fmt::format("the key-value cache has {} bytes, one page of {} tokens takes {}", options.kv_bytes, kPage,
                            page_bytes),
                "give it more memory, or a smaller format (kv_quant_dtype)");
  }
  return std::make_unique<ModelRunner>(parts, options, sites, context, pages);
}

}  // namespace octavo::engine
