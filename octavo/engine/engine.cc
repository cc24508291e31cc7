#include "octavo/engine/engine.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/engine/pack_weights.h"
#include "octavo/quant/provider.h"
#include "octavo/weights/load_model.h"
#include "octavo/weights/source.h"
#include "octavo/weights/stored_model.h"

namespace octavo::engine {

ResultTokens::Slot ResultTokens::GetResultAtSlot(int64_t slot) const {
  if (slot < 0 || slot >= rows()) ThrowUsage("ResultTokens: slot {} of {}", slot, rows());
  const auto at = static_cast<size_t>(slot);
  Slot result;
  result.tokens = {data[3 * at]};
  result.valid = {data[3 * at + 1] != 0};
  result.lengths = data[3 * at + 2];
  result.log_prob = {log_prob[at]};
  result.error = errors[at];
  return result;
}

void ResultTokens::Add(int32_t token, bool is_valid, int32_t length, float logp, std::string why) {
  data.insert(data.end(), {token, is_valid ? 1 : 0, length});
  log_prob.push_back(logp);
  errors.push_back(std::move(why));
}

Prefix::Prefix(Prefix&& other) noexcept
    : runner_(std::exchange(other.runner_, nullptr)),
      sequence_(other.sequence_),
      sampling_(std::move(other.sampling_)),
      prompt_(std::move(other.prompt_)),
      first_(std::move(other.first_)),
      prompt_logp_(std::move(other.prompt_logp_)) {}

Prefix& Prefix::operator=(Prefix&& other) noexcept {
  std::swap(runner_, other.runner_);
  std::swap(sequence_, other.sequence_);
  std::swap(sampling_, other.sampling_);
  std::swap(prompt_, other.prompt_);
  std::swap(first_, other.first_);
  std::swap(prompt_logp_, other.prompt_logp_);
  return *this;
}

Prefix::~Prefix() {
  if (runner_ != nullptr) runner_->Close(sequence_);
}

int64_t Prefix::true_length() const { return static_cast<int64_t>(prompt_.size()); }

DecodeState::DecodeState(DecodeState&& other) noexcept : runner_(other.runner_), slots_(std::move(other.slots_)) {
  other.slots_.clear();
}

DecodeState::~DecodeState() {
  for (const Slot& slot : slots_) {
    if (slot.active) runner_->Close(slot.sequence);
  }
}

const DecodeState::Slot& DecodeState::At(int64_t slot) const {
  if (slot < 0 || slot >= slots()) ThrowUsage("slot {} does not exist; there are {}", slot, slots());
  return slots_[static_cast<size_t>(slot)];
}

DecodeState::Slot& DecodeState::At(int64_t slot) { return const_cast<Slot&>(std::as_const(*this).At(slot)); }

bool DecodeState::active(int64_t slot) const { return At(slot).active; }
int64_t DecodeState::next_pos(int64_t slot) const { return active(slot) ? runner_->length(At(slot).sequence) : 0; }
int64_t DecodeState::generated_tokens(int64_t slot) const { return At(slot).generated; }
int32_t DecodeState::token(int64_t slot) const { return At(slot).token; }

// The model that runs. Declared in the order of what points to what.
struct Engine::Loaded {
  explicit Loaded(int threads) : pool(threads) {}
  ThreadPool pool;
  weights::LoadedModel model;
  std::unique_ptr<quant::Provider> provider;
  std::unique_ptr<Runner> runner;
};

Engine::Engine(const EngineOptions& options) : options_(options) {
  if (options.max_concurrent_decodes < 1) ThrowUsage("max_concurrent_decodes={}", options.max_concurrent_decodes);
  if (options.prefill_chunk_size < 0) ThrowUsage("prefill_chunk_size={}", options.prefill_chunk_size);
}

Engine::~Engine() = default;

Runner& Engine::runner() {
  if (loaded_ == nullptr) ThrowUsage("Engine: no model is loaded; call LoadParams first");
  return *loaded_->runner;
}
const Runner& Engine::runner() const { return const_cast<Engine*>(this)->runner(); }

int64_t Engine::max_prefill_length() const { return runner().context_length() - 1; }

void Engine::Finish(std::unique_ptr<Loaded> loaded) {
  Loaded& now = *loaded;
  now.provider = std::make_unique<quant::Provider>(*now.model.plan);
  const RunnerParts parts{*now.model.model, now.provider.get(), &now.model.state, now.pool, kernels::ChooseIsa().isa};
  PackWeights(parts, *now.provider);
  RunnerOptions options;
  options.context_length = options_.max_target_length;
  options.kv = options_.kv;
  options.kv_bytes = options_.kv_bytes;
  options.sequences = options_.max_concurrent_decodes + 1;
  options.prefix_cache = options_.prefix_cache;
  now.runner = MakeRunner(parts, options);
  loaded_ = std::move(loaded);
}

void Engine::LoadParams(const std::string& path, const quant::RecipeChoice* recipe) {
  auto loaded = std::make_unique<Loaded>(options_.threads);
  weights::LoadOptions how;
  how.recipe = recipe;
  how.max_target_length = options_.max_target_length;
  loaded->model = weights::LoadModel(weights::OpenStored(path), how, loaded->pool, kernels::ChooseIsa().isa);
  Finish(std::move(loaded));
}

void Engine::LoadParams(const models::ModelConfig& config, const std::map<std::string, Tensor>& tensors,
                        const quant::RecipeChoice* recipe) {
  weights::StoredModel stored;
  stored.name = config.model_name;
  stored.path = "tensors in memory";
  stored.config = config;
  const auto model = models::MakeModel(config);
  std::vector<std::string> faults;
  for (const ops::Parameter* parameter : model->parameters()) {
    const auto at = tensors.find(parameter->name);
    if (at == tensors.end()) {
      faults.push_back(fmt::format("  {} is missing", parameter->name));
    } else if (at->second.shape() != parameter->shape()) {
      faults.push_back(fmt::format("  {} is {}, expected {}", parameter->name, at->second.shape(), parameter->shape()));
    }
  }
  for (const auto& [name, tensor] : tensors) {
    if (model->parameter_set().Find(name) == nullptr) faults.push_back(fmt::format("  {} is not a parameter", name));
  }
  if (!faults.empty()) {
    throw Error(ErrorCode::kUsage, "the tensors are not those of the model",
                fmt::format("{}", fmt::join(faults, "\n")));
  }
  stored.floats = weights::SourceOf(tensors, stored.path);
  auto loaded = std::make_unique<Loaded>(options_.threads);
  weights::LoadOptions how;
  how.recipe = recipe;
  how.max_target_length = options_.max_target_length;
  loaded->model = weights::LoadModel(stored, how, loaded->pool, kernels::ChooseIsa().isa);
  Finish(std::move(loaded));
}

Tensor Engine::RunPrompt(SequenceId sequence, std::span<const int32_t> tokens, bool logp,
                         std::vector<float>& prompt_logp) {
  const auto all = static_cast<int64_t>(tokens.size());
  const int64_t chunk = use_chunked_prefill() ? options_.prefill_chunk_size : all;
  Tensor last;
  for (int64_t at = 0; at < all;) {
    const int64_t count = std::min(chunk, all - at);
    const Work work{sequence, tokens.subspan(static_cast<size_t>(at), static_cast<size_t>(count)), logp,
                    at + count == all};
    const Tensor logits = runner().Step({&work, 1});
    for (int64_t i = 0; logp && i < count && at + i + 1 < all; ++i) {
      const Tensor row = logits.Select(0, i);
      const int32_t next = tokens[static_cast<size_t>(at + i + 1)];
      prompt_logp.push_back(LogProbability(kernels::ChooseIsa().isa, row.Values<float>(), next, 0).logprob);
    }
    at += count;
    if (at == all) last = logits.Select(0, logits.dim(0) - 1);
  }
  return last;
}

void Engine::Draw(Prefix& prefix, std::span<const float> logits, int samples, ResultTokens& result) {
  for (int sample = 0; sample < samples; ++sample) {
    const Sampler sampler(prefix.sampling_, sample, prefix.prompt_);
    const Sampler::Row row{logits, prefix.true_length(), {}, {}, 0};
    prefix.first_.push_back(sampler.Next(kernels::ChooseIsa().isa, row, scratch_));
    result.Add(prefix.first_.back().token, true, 0, prefix.first_.back().logprob);
  }
}

Engine::Prefilled Engine::PrefillSamples(std::span<const int32_t> tokens, int samples, const PrefillOptions& options,
                                         const Prefix* existing) {
  if (tokens.empty()) ThrowUsage("prompt is empty");
  const int64_t before = existing == nullptr ? 0 : existing->true_length();
  const int64_t length = before + static_cast<int64_t>(tokens.size());
  if (length > max_prefill_length()) {
    ThrowUsage("prompt has {} tokens, the model takes {}", length, max_prefill_length());
  }
  int64_t cached = 0;
  // Log-probabilities need every token run.
  const bool reuse = existing == nullptr && !options.return_prompt_logp;
  const SequenceId sequence = existing != nullptr ? runner().Fork(existing->sequence_)
                                                  : runner().Open(reuse ? tokens : tokens.first(1), options.adapter,
                                                                  options.cache_scope, &cached);
  Prefilled result{Prefix(runner(), sequence), {}};
  Prefix& prefix = result.prefix;
  prefix.sampling_ = options.sampling;
  if (existing != nullptr) prefix.prompt_ = existing->prompt_;
  prefix.prompt_.insert(prefix.prompt_.end(), tokens.begin(), tokens.end());
  if (options.return_prompt_logp) prefix.prompt_logp_.push_back(std::numeric_limits<float>::quiet_NaN());
  const Tensor logits =
      RunPrompt(sequence, tokens.subspan(static_cast<size_t>(cached)), options.return_prompt_logp, prefix.prompt_logp_);
  Draw(prefix, logits.Values<float>(), samples, result.result);
  return result;
}

Engine::Prefilled Engine::Prefill(std::span<const int32_t> tokens, const PrefillOptions& options,
                                  const Prefix* existing) {
  return PrefillSamples(tokens, 1, options, existing);
}

Engine::Prefilled Engine::PrefillMultisampling(std::span<const int32_t> tokens, int samples,
                                               const PrefillOptions& options) {
  if (samples < 1) ThrowUsage("PrefillMultisampling: {} samples", samples);
  return PrefillSamples(tokens, samples, options, nullptr);
}

std::vector<Engine::Prefilled> Engine::PrefillConcat(std::span<const std::vector<int32_t>> prompts,
                                                     const PrefillOptions& options) {
  std::vector<Prefilled> results;
  std::vector<Work> work;
  for (const std::vector<int32_t>& prompt : prompts) {
    if (prompt.empty()) ThrowUsage("prompt is empty");
    if (static_cast<int64_t>(prompt.size()) > max_prefill_length()) {
      ThrowUsage("prompt has {} tokens, the model takes {}", prompt.size(), max_prefill_length());
    }
    int64_t cached = 0;
    const SequenceId sequence = runner().Open(prompt, options.adapter, options.cache_scope, &cached);
    results.push_back({Prefix(runner(), sequence), {}});
    results.back().prefix.sampling_ = options.sampling;
    results.back().prefix.prompt_ = prompt;
    work.push_back({sequence, std::span(prompt).subspan(static_cast<size_t>(cached))});
  }
  const Tensor logits = runner().Step(work);
  for (size_t i = 0; i < results.size(); ++i) {
    const Tensor row = logits.Select(0, static_cast<int64_t>(i));
    Draw(results[i].prefix, row.Values<float>(), 1, results[i].result);
  }
  return results;
}

DecodeState Engine::InitDecodeState() { return DecodeState(runner(), options_.max_concurrent_decodes); }

void Engine::FreeResource(DecodeState& state, int64_t slot) {
  DecodeState::Slot& at = state.At(slot);
  if (at.active) runner().Close(at.sequence);
  at = DecodeState::Slot();
}

void Engine::Place(const Prefix& prefix, size_t sample, DecodeState& state, int64_t slot) {
  FreeResource(state, slot);
  DecodeState::Slot& at = state.At(slot);
  at.sequence = runner().Fork(prefix.sequence_);
  at.active = true;
  at.token = prefix.first_[std::min(sample, prefix.first_.size() - 1)].token;
  at.sampler.emplace(prefix.sampling_, static_cast<int>(sample), prefix.prompt_);
  at.sampler->Add(at.token);
}

void Engine::Insert(const Prefix& prefix, DecodeState& state, int64_t slot) { Place(prefix, 0, state, slot); }

void Engine::BulkInsert(const Prefix& prefix, DecodeState& state, std::span<const int64_t> slots) {
  if (prefix.first().size() != 1 && prefix.first().size() != slots.size()) {
    ThrowUsage("BulkInsert: {} first tokens for {} slots", prefix.first().size(), slots.size());
  }
  for (size_t i = 0; i < slots.size(); ++i) Place(prefix, i, state, slots[i]);
}

void Engine::InsertPartial(std::span<const Prefilled> prefixes, DecodeState& state, std::span<const int64_t> slots) {
  if (prefixes.size() != slots.size()) ThrowUsage("InsertPartial: {} prompts, {} slots", prefixes.size(), slots.size());
  for (size_t i = 0; i < slots.size(); ++i) Insert(prefixes[i].prefix, state, slots[i]);
}

ResultTokens Engine::Generate(DecodeState& state) {
  std::vector<Work> work;
  std::vector<std::string> why(static_cast<size_t>(state.slots()));
  for (int64_t i = 0; i < state.slots(); ++i) {
    const DecodeState::Slot& slot = state.At(i);
    if (!slot.active) continue;
    if (state.next_pos(i) >= runner().context_length()) {
      why[static_cast<size_t>(i)] = "the context is full";
      FreeResource(state, i);
    } else {
      work.push_back({slot.sequence, {&slot.token, 1}});
    }
  }
  const Tensor logits = runner().Step(work);
  ResultTokens result;
  int64_t row = 0;
  for (int64_t i = 0; i < state.slots(); ++i) {
    DecodeState::Slot& slot = state.At(i);
    std::string& error = why[static_cast<size_t>(i)];
    if (!slot.active) {
      result.Add(0, false, 0, 0, std::move(error));
      continue;
    }
    const Tensor values = logits.Select(0, row++);
    try {
      const Sampler::Row in{values.Values<float>(), runner().length(slot.sequence), {}, {}, 0};
      const TokenLogprob next = slot.sampler->Next(kernels::ChooseIsa().isa, in, scratch_);
      slot.sampler->Add(next.token);
      slot.token = next.token;
      ++slot.generated;
      result.Add(next.token, true, static_cast<int32_t>(slot.generated), next.logprob);
    } catch (const SampleError& failed) {
      result.Add(0, false, static_cast<int32_t>(slot.generated), 0, failed.message());
      FreeResource(state, i);
    }
  }
  return result;
}

}  // namespace octavo::engine
