// The engine in JetStream's words, as a library: prefill a prompt, insert it into a slot, generate one token for every
// slot. For programs that drive the loop themselves; who wants requests, queues and text uses scheduler.h.
//
// Threads: an engine with its prefixes and decode states is used by one thread at a time, not always the same one;
// engines share nothing, so that each may have its own. Life: prefixes and decode states keep the model they belong to
// and may go after the engine. The thread that loads a model computes in the product's float mode (float_mode.h) until
// that model is gone; others are in it inside calls only.
//
// Differences from the reference, all of them holes of its own: no padding (a prompt's length is its size); sampling
// and adapter per request, every number of them checked; a slot without a request is not valid; a prompt that does not
// fit, a slot out of range and an empty prompt are errors; results of every kind of prefill have log-probabilities; a
// failed slot (NaN, end of context) is freed and leaves the others alone; the cache of a slot is not cut in two parts,
// and inserting copies nothing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "octavo/engine/held_sequence.h"
#include "octavo/engine/model_runner.h"
#include "octavo/engine/request.h"
#include "octavo/engine/result_tokens.h"
#include "octavo/engine/sampler.h"
#include "octavo/models/model_config.h"
#include "octavo/quant/lora.h"
#include "octavo/quant/recipe_choice.h"
#include "octavo/text/tokenizer.h"
#include "octavo/weights/stored_model.h"

namespace octavo::engine {

struct EngineOptions {
  int64_t max_concurrent_decodes = 8;
  int64_t max_target_length = 0;         // of prompt and answer; 0: the model's
  int64_t prefill_chunk_size = 0;        // tokens of one prefill step; 0: whole prompts
  std::optional<ops::KvFormat> kv = {};  // unset: as the recipe says, else the type of the computation
  int64_t kv_bytes = 0;                  // 0: a whole context per slot and one for prefill
  bool prefix_cache = true;
  bool checkpoint_is_quantized = false;  // floats that a recipe quantizes are a usage error
  bool allow_batch_coupled = false;      // run although one prompt's scale may depend on another's
  int threads = 1;
};

class Engine;

// A prompt in the cache and the first token(s) drawn from it. Movable; closing gives the pages back.
class Prefix {
 public:
  int64_t true_length() const { return static_cast<int64_t>(prompt_.size()); }  // tokens of the prompt
  int64_t next_pos() const { return true_length(); }
  std::span<const TokenLogprob> first() const { return first_; }  // one per sample
  // Of token i of the prompt, at [i]; empty unless asked for. NaN for token 0, and for tokens of an `existing` prefix
  // that was not asked for them.
  std::span<const float> prompt_logp() const { return prompt_logp_; }
  const Tensor& logits() const { return logits_; }  // [V] f32, that the first tokens were drawn from

 private:
  friend class Engine;
  Prefix() = default;

  HeldSequence sequence_;
  Sampling sampling_;
  int adapter_ = 0;
  std::string cache_scope_;
  std::vector<int32_t> prompt_;
  std::vector<TokenLogprob> first_;
  std::vector<float> prompt_logp_;
  Tensor logits_;
};

// All slots between two steps.
class DecodeState {
 public:
  int64_t slots() const { return static_cast<int64_t>(slots_.size()); }
  bool active(int64_t slot) const { return At(slot).sequence.open(); }
  int64_t next_pos(int64_t slot) const { return At(slot).sequence.length(); }  // of the next token that is run
  int64_t generated_tokens(int64_t slot) const { return At(slot).generated; }
  int32_t token(int64_t slot) const { return At(slot).token; }          // that the next step feeds
  const Tensor& logits(int64_t slot) const { return At(slot).logits; }  // [V] f32, that it was drawn from

 private:
  friend class Engine;
  struct Slot {
    HeldSequence sequence;
    int32_t token = 0;
    int64_t generated = 0;
    std::optional<Sampler> sampler;
    Tensor logits;
    std::string failed;  // why it was freed, until the next result says so
  };
  DecodeState(std::shared_ptr<Runner> runner, int64_t slots)
      : runner_(std::move(runner)), slots_(static_cast<size_t>(slots)) {}
  const Slot& At(int64_t slot) const;
  Slot& At(int64_t slot);

  std::shared_ptr<Runner> runner_;
  std::vector<Slot> slots_;
};

struct PrefillOptions {
  Sampling sampling;
  bool return_prompt_logp = false;
  std::string adapter;      // as LoadAdapter named it; empty: the base model
  std::string cache_scope;  // prefix pages are shared only between equal scopes
};

class Engine {
 public:
  explicit Engine(const EngineOptions& options);
  ~Engine();

  // From anything weights::OpenStored takes: quantized files as they are, floats as their own recipe says or under
  // `recipe`; the bits are the same. Replaces what was loaded, adapters too, once the new model is there; a usage error
  // as long as a prefix or decode state of the old one is left.
  void LoadParams(const std::string& path, const quant::RecipeChoice* recipe = nullptr);
  // From float tensors in memory, by our names, unrolled ("decoder/layers_0/mlp/wi_0/kernel"). Strict: every parameter
  // and nothing else. Those that stay floats share the caller's memory, which must not change while they are loaded.
  void LoadParams(const models::ModelConfig& config, const std::map<std::string, Tensor>& tensors,
                  const quant::RecipeChoice* recipe = nullptr);

  // LoRA, never merged: several at once, chosen by each prompt. From a PEFT folder, or factors in memory by the names
  // of the weights. Usage errors: a name that is taken, an adapter of another model.
  void LoadAdapter(const std::string& name, const std::filesystem::path& folder);
  void LoadAdapter(quant::LoraAdapter adapter);
  // No further prompt may ask for it; prefixes and slots that have it keep it.
  void UnloadAdapter(const std::string& name);
  std::vector<std::string> adapters() const;

  // The tokenizer of the loaded model, or of another file or folder. Outlives the engine; any thread.
  std::unique_ptr<text::Tokenizer> BuildTokenizer(const std::string& path = "") const;

  struct Prefilled {
    Prefix prefix;
    ResultTokens result;
  };
  // With `existing` the tokens follow what it holds, and are only what comes after; adapter and scope are its own.
  Prefilled Prefill(std::span<const int32_t> tokens, const PrefillOptions& options = {},
                    const Prefix* existing = nullptr);
  // One run of the prompt, `samples` first tokens from it.
  Prefilled PrefillMultisampling(std::span<const int32_t> tokens, int samples, const PrefillOptions& options = {});
  // Several prompts packed into one step (or steps of prefill_chunk_size); each with the bits it has alone. A prompt
  // that fails (NaN) has a result that is not valid and says why, and no first token.
  std::vector<Prefilled> PrefillConcat(std::span<const std::vector<int32_t>> prompts,
                                       const PrefillOptions& options = {});

  DecodeState InitDecodeState();
  // Puts a prompt into a slot; one that was there is freed. The prefix can be inserted again. Nothing changes when any
  // of the slots or prefixes is refused.
  void Insert(const Prefix& prefix, DecodeState& state, int64_t slot);
  // One prefix into many slots: first token i goes to slots[i]; as many slots as samples, or one sample for all.
  void BulkInsert(const Prefix& prefix, DecodeState& state, std::span<const int64_t> slots);
  // The prompts of PrefillConcat, each into its slot. The slot of one that failed stays free, and the next result says
  // why.
  void InsertPartial(std::span<const Prefilled> prefixes, DecodeState& state, std::span<const int64_t> slots);
  // One token for every active slot.
  ResultTokens Generate(DecodeState& state);
  void FreeResource(DecodeState& state, int64_t slot);

  int64_t max_concurrent_decodes() const { return options_.max_concurrent_decodes; }
  int64_t max_prefill_length() const;
  bool use_chunked_prefill() const { return options_.prefill_chunk_size > 0; }
  int64_t prefill_chunk_size() const { return options_.prefill_chunk_size; }
  int64_t samples_per_slot() const { return ResultTokens::samples_per_slot; }
  // What everything here is made of, for who needs more rows of logits; gone with the next LoadParams.
  Runner& runner();
  const Runner& runner() const;

 private:
  struct Loaded;
  Loaded& loaded() const;
  void CheckNothingIsLeft() const;
  void Load(const weights::StoredModel& stored, const quant::RecipeChoice* recipe);
  void CheckOwn(const Prefix& prefix) const;
  void CheckOwn(const DecodeState& state) const;
  void CheckSlots(const DecodeState& state, std::span<const int64_t> slots) const;
  void Validate(std::span<const int32_t> prompt, const PrefillOptions& options) const;
  Prefix Begin(std::span<const int32_t> tokens, const PrefillOptions& options, const Prefix* existing);
  void Run(std::span<Prefilled> prompts, bool logp);
  void Draw(Prefilled& prompt, int samples);
  Prefilled PrefillSamples(std::span<const int32_t> tokens, int samples, const PrefillOptions& options,
                           const Prefix* existing);
  void Place(const Prefix& prefix, size_t sample, DecodeState& state, int64_t slot);

  EngineOptions options_;
  SamplerScratch scratch_;
  std::shared_ptr<Loaded> loaded_;
};

}  // namespace octavo::engine
