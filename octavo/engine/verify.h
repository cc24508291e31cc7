// One set of bits, shown: the logits of some prompts, computed in every way that a server may happen to compute them,
// as hashes that must all be equal. Used by `octavo verify` and by tests. It compares bits, never distances.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "octavo/engine/model_runner.h"
#include "octavo/models/model.h"
#include "octavo/ops/interceptor.h"
#include "octavo/ops/kv_pages.h"
#include "octavo/ops/state.h"

namespace octavo::engine {

// Answers like `next`, and stores the keys and values of attention ops that no rule of it covers in one format: how the
// trainer's forward pass runs under a server's cache. What its own plan says stands: a server that stores otherwise
// has other bits, and that must be seen.
class WithKvFormat : public ops::Interceptor {
 public:
  WithKvFormat(ops::Interceptor* next, const ops::KvFormat& format) : next_(next), format_(format) {}
  std::optional<ops::Var> Dot(ops::Context& context, const ops::DotCall& call) override {
    return next_ == nullptr ? std::nullopt : next_->Dot(context, call);
  }
  std::optional<ops::Var> RaggedDot(ops::Context& context, const ops::RaggedCall& call) override {
    return next_ == nullptr ? std::nullopt : next_->RaggedDot(context, call);
  }
  bool Answers(const ops::Site& site) const override { return next_ != nullptr && next_->Answers(site); }
  void Fused(ops::Context& context, const ops::DotCall& call) override {
    if (next_ != nullptr) next_->Fused(context, call);
  }
  std::optional<ops::KvFormat> KvCache(ops::Context& context, const ops::KvCall& call) override {
    const std::optional<ops::KvFormat> own = next_ == nullptr ? std::nullopt : next_->KvCache(context, call);
    return own.value_or(format_);
  }

 private:
  ops::Interceptor* next_;
  ops::KvFormat format_;
};

// A model with who answers its dots.
struct VerifyModel {
  models::Model& model;
  ops::Interceptor* interceptor = nullptr;
  const ops::StateStore* state = nullptr;
};

struct VerifyOptions {
  kernels::Isa isa;
  ops::KvFormat kv = {};
  int prompts = 8;
  int64_t tokens = 72;  // of the first prompt; each further one is a token longer. Past 64, so that pages matter
  uint64_t seed = 0;
  std::vector<int> threads = {1, 2, 3};
  std::vector<int> batches = {1, 3, 8};
  std::vector<int64_t> chunks = {1, 7, 64, 0};  // 0: all
};

struct VerifyRow {
  std::string what;                   // "threads 2, batch 3, chunk 7"
  std::vector<std::string> hashes;    // one per prompt
  std::vector<int64_t> from;          // token that each begins with: those before it came from the prefix cache
  std::vector<std::string> expected;  // the first row's hashes of the same tokens
};

struct VerifyReport {
  std::vector<VerifyRow> rows;         // the first one is what the others are compared with
  std::vector<std::string> different;  // "threads 2, batch 3, chunk 7: prompt 4"
  int64_t cached = 0;                  // tokens that came from the prefix cache in the row of its hits
  bool equal() const { return different.empty(); }
};

// `served` runs through runners; `trained`, if not null, is the trainer's form of the same model and runs whole
// prompts without a cache. `on_row` is told of each row as it is done.
VerifyReport Verify(const VerifyModel& served, const VerifyModel* trained, const VerifyOptions& options,
                    const std::function<void(const VerifyRow&)>& on_row = nullptr);

// The table that `octavo verify` prints.
std::string VerifyTable(const VerifyReport& report, const VerifyOptions& options);

}  // namespace octavo::engine
