// The engine in JetStream's words, as a library: prefill a prompt, insert it into a slot, generate one token for every
// slot. For programs that drive the loop themselves; who wants requests, queues and text uses scheduler.h. One thread
// drives an engine with its prefixes and decode states, all of which must go before it does.
//
// Differences from the reference, all of them holes of its own: no padding (a prompt's length is its size); sampling
// per request; a slot without a request is not valid; a prompt that does not fit, a slot out of range and an empty
// prompt are errors; results of every kind of prefill have log-probabilities; a failed slot (NaN, end of context) is
// freed and leaves the others alone; the cache of a slot is not cut in two parts, and inserting copies nothing.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "octavo/engine/model_runner.h"
#include "octavo/engine/request.h"
#include "octavo/engine/result_tokens.h"
#include "octavo/engine/runner.h"
#include "octavo/engine/sampler.h"
#include "octavo/models/model_config.h"
#include "octavo/quant/recipe_choice.h"

namespace octavo::engine {

struct EngineOptions {
  int64_t max_concurrent_decodes = 8;
  int64_t max_target_length = 0;   // of prompt and answer; 0: the model's
  int64_t prefill_chunk_size = 0;  // 0: whole prompts
  ops::KvFormat kv = {};
  int64_t kv_bytes = 0;  // 0: a whole context per slot and one for prefill
  bool prefix_cache = true;
  int threads = 1;
};

class Engine;

// A prompt in the cache and the first token(s) drawn from it. Movable; closing gives the pages back.
class Prefix {
 public:
  Prefix(Prefix&&) noexcept;
  Prefix& operator=(Prefix&&) noexcept;
  ~Prefix();

  int64_t true_length() const;  // tokens of the prompt
  int64_t next_pos() const { return true_length(); }
  std::span<const TokenLogprob> first() const { return first_; }  // one per sample
  // Of every prompt token but the first, whose value is NaN; empty unless asked for.
  std::span<const float> prompt_logp() const { return prompt_logp_; }

 private:
  friend class Engine;
  Prefix(Runner& runner, SequenceId sequence) : runner_(&runner), sequence_(sequence) {}

  Runner* runner_;
  SequenceId sequence_;
  Sampling sampling_;
  std::vector<int32_t> prompt_;
  std::vector<TokenLogprob> first_;
  std::vector<float> prompt_logp_;
};

// All slots between two steps.
class DecodeState {
 public:
  DecodeState(DecodeState&&) noexcept;
  DecodeState& operator=(DecodeState&&) noexcept = delete;
  ~DecodeState();

  int64_t slots() const { return static_cast<int64_t>(slots_.size()); }
  bool active(int64_t slot) const;
  int64_t next_pos(int64_t slot) const;  // position of the next token that is run
  int64_t generated_tokens(int64_t slot) const;
  int32_t token(int64_t slot) const;  // that the next step feeds

 private:
  friend class Engine;
  struct Slot {
    bool active = false;
    SequenceId sequence = 0;
    int32_t token = 0;
    int64_t generated = 0;
    std::optional<Sampler> sampler;
  };
  DecodeState(Runner& runner, int64_t slots) : runner_(&runner), slots_(static_cast<size_t>(slots)) {}
  const Slot& At(int64_t slot) const;
  Slot& At(int64_t slot);

  Runner* runner_;
  std::vector<Slot> slots_;
};

struct PrefillOptions {
  Sampling sampling;
  bool return_prompt_logp = false;
  int adapter = 0;
  std::string cache_scope;
};

class Engine {
 public:
  explicit Engine(const EngineOptions& options);
  ~Engine();

  // From anything weights::OpenStored takes: quantized files as they are, floats as their own recipe says or under
  // `recipe`. Replaces what was loaded; no prefix or state may be left.
  void LoadParams(const std::string& path, const quant::RecipeChoice* recipe = nullptr);
  // From float tensors in memory, by our names, unrolled ("decoder/layers_0/mlp/wi_0/kernel"). Strict: every parameter
  // and nothing else.
  void LoadParams(const models::ModelConfig& config, const std::map<std::string, Tensor>& tensors,
                  const quant::RecipeChoice* recipe = nullptr);

  struct Prefilled {
    Prefix prefix;
    ResultTokens result;
  };
  // With `existing` the tokens follow what it holds, and are only what comes after.
  Prefilled Prefill(std::span<const int32_t> tokens, const PrefillOptions& options = {},
                    const Prefix* existing = nullptr);
  // One run of the prompt, `samples` first tokens from it.
  Prefilled PrefillMultisampling(std::span<const int32_t> tokens, int samples, const PrefillOptions& options = {});
  // Several prompts packed into one step; each with the bits it has alone.
  std::vector<Prefilled> PrefillConcat(std::span<const std::vector<int32_t>> prompts,
                                       const PrefillOptions& options = {});

  DecodeState InitDecodeState();
  // Puts a prompt into a slot; one that was there is freed. The prefix can be inserted again.
  void Insert(const Prefix& prefix, DecodeState& state, int64_t slot);
  // One prefix into many slots: first token i goes to slots[i]; as many slots as samples, or one sample for all.
  void BulkInsert(const Prefix& prefix, DecodeState& state, std::span<const int64_t> slots);
  // The prompts of PrefillConcat, each into its slot.
  void InsertPartial(std::span<const Prefilled> prefixes, DecodeState& state, std::span<const int64_t> slots);
  // One token for every active slot.
  ResultTokens Generate(DecodeState& state);
  void FreeResource(DecodeState& state, int64_t slot);

  int64_t max_concurrent_decodes() const { return options_.max_concurrent_decodes; }
  int64_t max_prefill_length() const;
  bool use_chunked_prefill() const { return options_.prefill_chunk_size > 0; }
  int64_t prefill_chunk_size() const { return options_.prefill_chunk_size; }
  int64_t samples_per_slot() const { return ResultTokens::samples_per_slot; }
  // What everything here is made of; for who needs rows of logits.
  Runner& runner();
  const Runner& runner() const;

 private:
  struct Loaded;
  void Finish(std::unique_ptr<Loaded> loaded);
  Prefilled PrefillSamples(std::span<const int32_t> tokens, int samples, const PrefillOptions& options,
                           const Prefix* existing);
  // Runs the rest of a prompt; the logits of its last token, and log-probabilities of the others if wanted.
  Tensor RunPrompt(SequenceId sequence, std::span<const int32_t> tokens, bool logp, std::vector<float>& prompt_logp);
  void Draw(Prefix& prefix, std::span<const float> logits, int samples, ResultTokens& result);
  void Place(const Prefix& prefix, size_t sample, DecodeState& state, int64_t slot);

  EngineOptions options_;
  SamplerScratch scratch_;
  std::unique_ptr<Loaded> loaded_;
};

}  // namespace octavo::engine
