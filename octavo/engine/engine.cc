#include "octavo/engine/engine.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/base/float_mode.h"
#include "octavo/engine/adapters.h"
#include "octavo/engine/kv_memory.h"
#include "octavo/engine/model_tokenizer.h"
#include "octavo/engine/pack_weights.h"
#include "octavo/engine/validate.h"
#include "octavo/quant/provider.h"
#include "octavo/weights/load_model.h"
#include "octavo/weights/source.h"

namespace octavo::engine {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
// Tokens of one step when the logits of all of them are wanted: a row may have a hundred thousand of them.
constexpr int64_t kLogitRows = 256;

constexpr const char* kInMemory = "tensors in memory";

// Factors that somebody made in memory: each for a weight that the model multiplies by, and of its shape.
void CheckFactors(const quant::LoraAdapter& adapter, const quant::Plan& plan) {
  constexpr const char* kHint = "it was made for another model";
  if (adapter.factors.empty()) ThrowUsage("adapter {}: it has no factors", adapter.name);
  for (const auto& [weight, part] : adapter.factors) {
    const auto site = std::ranges::find(plan.sites, weight, &quant::SitePlan::weight);
    if (site == plan.sites.end()) {
      throw Error(ErrorCode::kUsage, fmt::format("adapter {}: the model multiplies by no {}", adapter.name, weight),
                  kHint);
    }
    // A projection contracts the last axes of the activation with the first of the weight.
    const auto axes = static_cast<int>(site->dims.rhs_contract.size());
    bool projection = axes > 0 && !site->weight_is_lhs && site->dims.rhs_batch.empty();
    int64_t in = 1;
    for (int i = 0; i < axes; ++i) {
      const auto at = static_cast<size_t>(i);
      projection &= site->dims.rhs_contract[at] == i && site->dims.lhs_contract[at] == site->lhs.rank() - axes + i;
      in *= site->rhs[i];
    }
    if (!projection) ThrowUsage("adapter {}: adapters of {} are not supported", adapter.name, weight);
    const Tensor &a = part.a.tensor(), &b = part.b.tensor();
    const bool fits =
        a.rank() == 2 && b.rank() == 2 && a.dim(0) == in && a.dim(1) == b.dim(0) && b.dim(1) == site->rhs.size() / in;
    if (!fits) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("adapter {}: {} is {}, the factors are {} and {}", adapter.name, weight, site->rhs,
                              a.shape(), b.shape()),
                  kHint);
    }
    if (a.dtype() != DType::kF32 || b.dtype() != DType::kF32) {
      ThrowUsage("adapter {}: the factors of {} are {} and {}, not f32", adapter.name, weight, NameOf(a.dtype()),
                 NameOf(b.dtype()));
    }
  }
}

}  // namespace

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

const DecodeState::Slot& DecodeState::At(int64_t slot) const {
  if (slot < 0 || slot >= slots()) ThrowUsage("slot {} does not exist; there are {}", slot, slots());
  return slots_[static_cast<size_t>(slot)];
}

DecodeState::Slot& DecodeState::At(int64_t slot) { return const_cast<Slot&>(std::as_const(*this).At(slot)); }

// The model that runs. Declared in the order of what points to what.
struct Engine::Loaded {
  explicit Loaded(int threads) : pool(threads) {}
  ThreadPool pool;
  weights::LoadedModel model;
  std::unique_ptr<quant::Provider> provider;  // null: floats
  std::unique_ptr<quant::LoraProvider> lora;
  std::unique_ptr<Adapters> adapters;
  std::unique_ptr<Runner> runner;
  std::string tokenizer_path;
  int64_t max_positions = 0;  // that the model allows
};

Engine::Engine(const EngineOptions& options) : options_(options) {
  const auto check = [](const char* name, int64_t value, int64_t least) {
    if (value < least) ThrowUsage("{}={} must be at least {}", name, value, least);
  };
  check("max_concurrent_decodes", options.max_concurrent_decodes, 1);
  check("max_target_length", options.max_target_length, 0);
  check("prefill_chunk_size", options.prefill_chunk_size, 0);
  check("kv_bytes", options.kv_bytes, 0);
  check("threads", options.threads, 1);
}

Engine::~Engine() = default;

Engine::Loaded& Engine::loaded() const {
  if (loaded_ == nullptr) ThrowUsage("Engine: no model is loaded; call LoadParams first");
  return *loaded_;
}

Runner& Engine::runner() { return *loaded().runner; }
const Runner& Engine::runner() const { return *loaded().runner; }

int64_t Engine::max_prefill_length() const { return runner().context_length() - 1; }

void Engine::CheckNothingIsLeft() const {
  if (loaded_ == nullptr || loaded_.use_count() == 1) return;
  throw Error(ErrorCode::kUsage,
              fmt::format("LoadParams: {} of the prefixes and decode states of the loaded model are left",
                          loaded_.use_count() - 1),
              "let them go first: what they hold was computed with the old parameters");
}

void Engine::Load(const weights::StoredModel& stored, const quant::RecipeChoice* recipe) {
  const int64_t most = stored.config.max_target_length;
  if (options_.max_target_length > most) {
    throw Error(ErrorCode::kUsage,
                fmt::format("max_target_length={}, the model takes {} tokens", options_.max_target_length, most),
                fmt::format("max_target_length={} at most", most));
  }
  auto next = std::make_shared<Loaded>(options_.threads);
  const ScopedFloatMode mode;
  weights::LoadOptions how;
  how.recipe = recipe;
  how.must_be_quantized = options_.checkpoint_is_quantized;
  how.max_target_length = options_.max_target_length;
  const kernels::Isa isa = kernels::ChooseIsa().isa;
  next->model = weights::LoadModel(stored, how, next->pool, isa);
  next->max_positions = most;
  next->tokenizer_path = TokenizerPathOf(stored);
  models::Model& model = *next->model.model;
  RunnerOptions options;
  options.kv = KvFormatFor(model, *next->model.plan, options_.kv);
  if (!next->model.recipe_name.empty()) next->provider = std::make_unique<quant::Provider>(*next->model.plan);
  next->lora = std::make_unique<quant::LoraProvider>(next->provider.get());
  next->adapters = std::make_unique<Adapters>(model, *next->lora);
  const RunnerParts parts{model, next->lora.get(), &next->model.state, next->pool, isa};
  if (next->provider != nullptr) {
    next->provider->StartStep();  // weights that stay floats never change either: each is packed once
    PackWeights(parts, *next->provider, options_.allow_batch_coupled);
  }
  options.context_length = options_.max_target_length;
  options.kv_bytes = options_.kv_bytes;
  options.sequences = options_.max_concurrent_decodes + 1;
  options.prefix_cache = options_.prefix_cache;
  next->runner = MakeRunner(parts, options);
  loaded_ = std::move(next);
}

void Engine::LoadParams(const std::string& path, const quant::RecipeChoice* recipe) {
  CheckNothingIsLeft();
  Load(weights::OpenStored(path), recipe);
}

void Engine::LoadParams(const models::ModelConfig& config, const std::map<std::string, Tensor>& tensors,
                        const quant::RecipeChoice* recipe) {
  CheckNothingIsLeft();
  weights::StoredModel stored;
  stored.name = config.model_name;
  stored.path = kInMemory;
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
  Load(stored, recipe);
}

void Engine::LoadAdapter(const std::string& name, const std::filesystem::path& folder) {
  loaded().adapters->Load(name, folder);
}

void Engine::LoadAdapter(quant::LoraAdapter adapter) {
  CheckFactors(adapter, *loaded().model.plan);
  loaded().adapters->Load(std::move(adapter));
}

void Engine::UnloadAdapter(const std::string& name) {
  if (!loaded().adapters->Unload(name)) ThrowUsage("no adapter '{}' is loaded", name);
}

std::vector<std::string> Engine::adapters() const { return loaded().adapters->Names(); }

std::unique_ptr<text::Tokenizer> Engine::BuildTokenizer(const std::string& path) const {
  const std::string& from = path.empty() ? loaded().tokenizer_path : path;
  if (from.empty()) {
    throw Error(ErrorCode::kUsage, "BuildTokenizer: the loaded model brings no tokenizer",
                "BuildTokenizer(FILE), or BuildTokenizer(\"bytes\") for a model of bytes");
  }
  return OpenTokenizer(from, runner().vocabulary_size());
}

void Engine::CheckOwn(const Prefix& prefix) const {
  if (prefix.sequence_.runner() == nullptr) ThrowUsage("the prefix was moved from");
  if (prefix.sequence_.runner() != &runner()) ThrowUsage("the prefix is of another engine");
  if (prefix.first_.empty()) ThrowUsage("the prefix has no first token: its prompt failed");
}

void Engine::CheckOwn(const DecodeState& state) const {
  if (state.runner_ == nullptr) ThrowUsage("the decode state was moved from");
  if (state.runner_.get() != &runner()) ThrowUsage("the decode state is of another engine");
}

void Engine::CheckSlots(const DecodeState& state, std::span<const int64_t> slots) const {
  CheckOwn(state);
  std::set<int64_t> seen;
  for (const int64_t slot : slots) {
    state.At(slot);
    if (!seen.insert(slot).second) ThrowUsage("slot {} is given twice", slot);
  }
}

void Engine::Validate(std::span<const int32_t> prompt, const PrefillOptions& options) const {
  Request request;
  request.prompt.assign(prompt.begin(), prompt.end());
  request.sampling = options.sampling;
  request.max_new_tokens = 1;  // a prompt that fills the context leaves no room for a token
  RequestLimits limits;
  limits.context_length = runner().context_length();
  limits.vocabulary_size = runner().vocabulary_size();
  limits.max_position_embeddings = loaded().max_positions;
  engine::Validate(request, limits);
}

// A prompt with its pages and the tokens that need not be run again.
Prefix Engine::Begin(std::span<const int32_t> tokens, const PrefillOptions& options, const Prefix* existing) {
  Prefix prefix;
  const auto before = existing == nullptr ? size_t{0} : existing->prompt_.size();
  if (existing != nullptr) {
    CheckOwn(*existing);
    if (!tokens.empty()) prefix.prompt_ = existing->prompt_;
  }
  prefix.prompt_.insert(prefix.prompt_.end(), tokens.begin(), tokens.end());
  Validate(prefix.prompt_, options);
  AdapterUse use;
  if (!options.adapter.empty()) {
    use = loaded().adapters->Find(options.adapter);
    if (use.number == 0) {
      throw RequestError("adapter", "model_not_found", fmt::format("no adapter '{}' is loaded", options.adapter),
                         fmt::format("loaded: {}", fmt::join(adapters(), ", ")));
    }
  }
  prefix.sampling_ = options.sampling;
  prefix.adapter_ = use.number;
  prefix.cache_scope_ = options.cache_scope;
  if (options.return_prompt_logp) prefix.prompt_logp_.assign(prefix.prompt_.size(), kNaN);
  if (existing == nullptr) {
    // Log-probabilities need every token run.
    const std::span<const int32_t> known = options.return_prompt_logp ? tokens.first(1) : tokens;
    const std::shared_ptr<Runner> shared(loaded_, loaded_->runner.get());
    prefix.sequence_ =
        HeldSequence(shared, shared->Open(known, use.number, options.cache_scope, nullptr), std::move(use.keep));
    return prefix;
  }
  if (existing->adapter_ != prefix.adapter_ || existing->cache_scope_ != prefix.cache_scope_) {
    throw Error(ErrorCode::kUsage,
                fmt::format("Prefill: adapter='{}' cache_scope='{}' are not those of the existing prefix",
                            options.adapter, options.cache_scope),
                "its keys and values were made with its own; give the same, or run the whole prompt");
  }
  prefix.sequence_ = existing->sequence_.Fork();
  if (options.return_prompt_logp) {
    std::ranges::copy(existing->prompt_logp_, prefix.prompt_logp_.begin());
    prefix.prompt_logp_[before] =
        LogProbability(kernels::ChooseIsa().isa, existing->logits_.Values<float>(), tokens[0], 0).logprob;
  }
  return prefix;
}

// The rest of every prompt, the first ones first, in common steps. Leaves the logits of their last tokens, and why a
// log-probability could not be had.
void Engine::Run(std::span<Prefilled> prompts, bool logp) {
  const int64_t chunk = use_chunked_prefill() ? options_.prefill_chunk_size
                        : logp                ? kLogitRows
                                              : std::numeric_limits<int64_t>::max();
  while (true) {
    std::vector<Work> work;
    std::vector<Prefix*> owner;
    int64_t room = chunk;
    for (Prefilled& prompt : prompts) {
      Prefix& prefix = prompt.prefix;
      const int64_t begin = prefix.sequence_.length(), left = prefix.true_length() - begin;
      const int64_t count = std::min(left, room);
      if (count == 0) continue;
      room -= count;
      const std::span<const int32_t> tokens(prefix.prompt_);
      work.push_back({prefix.sequence_.id(), tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(count)),
                      logp, count == left});
      owner.push_back(&prefix);
    }
    if (work.empty()) return;
    const Tensor logits = runner().Step(work);
    int64_t row = 0;
    for (size_t w = 0; w < work.size(); ++w) {
      Prefix& prefix = *owner[w];
      const auto count = static_cast<int64_t>(work[w].tokens.size());
      const int64_t end = prefix.sequence_.length();
      for (int64_t i = 0; logp && i < count; ++i) {
        const auto next = static_cast<size_t>(end - count + i + 1);
        if (next == prefix.prompt_.size()) break;
        const Tensor values = logits.Select(0, row + i);
        try {
          prefix.prompt_logp_[next] =
              LogProbability(kernels::ChooseIsa().isa, values.Values<float>(), prefix.prompt_[next], 0).logprob;
        } catch (const SampleError&) {
          prefix.prompt_logp_[next] = kNaN;  // what follows from a broken token is broken: Draw says so
        }
      }
      if (logp) row += count;
      if (!logp && work[w].last_logits) ++row;
      if (work[w].last_logits) prefix.logits_ = logits.Select(0, row - 1).Clone();
    }
  }
}

void Engine::Draw(Prefilled& prompt, int samples) {
  Prefix& prefix = prompt.prefix;
  for (int sample = 0; sample < samples; ++sample) {
    const Sampler sampler(prefix.sampling_, sample, prefix.prompt_);
    const Sampler::Row row{prefix.logits_.Values<float>(), prefix.true_length(), {}, {}, 0};
    prefix.first_.push_back(sampler.Next(kernels::ChooseIsa().isa, row, scratch_));
    prompt.result.Add(prefix.first_.back().token, true, 0, prefix.first_.back().logprob);
  }
}

Engine::Prefilled Engine::PrefillSamples(std::span<const int32_t> tokens, int samples, const PrefillOptions& options,
                                         const Prefix* existing) {
  const ScopedFloatMode mode;
  Prefilled prompt{Begin(tokens, options, existing), {}};
  Run({&prompt, 1}, options.return_prompt_logp);
  Draw(prompt, samples);
  return prompt;
}

Engine::Prefilled Engine::Prefill(std::span<const int32_t> tokens, const PrefillOptions& options,
                                  const Prefix* existing) {
  return PrefillSamples(tokens, 1, options, existing);
}

Engine::Prefilled Engine::PrefillMultisampling(std::span<const int32_t> tokens, int samples,
                                               const PrefillOptions& options) {
  if (samples < 1) ThrowUsage("PrefillMultisampling: samples={} must be at least 1", samples);
  return PrefillSamples(tokens, samples, options, nullptr);
}

std::vector<Engine::Prefilled> Engine::PrefillConcat(std::span<const std::vector<int32_t>> prompts,
                                                     const PrefillOptions& options) {
  const ScopedFloatMode mode;
  std::vector<Prefilled> results;
  for (const std::vector<int32_t>& prompt : prompts) results.push_back({Begin(prompt, options, nullptr), {}});
  Run(results, options.return_prompt_logp);
  for (Prefilled& result : results) {
    try {
      Draw(result, 1);
    } catch (const SampleError& failed) {
      result.result.Add(0, false, 0, 0, failed.message());
    }
  }
  return results;
}

DecodeState Engine::InitDecodeState() {
  Runner& all = runner();
  return DecodeState(std::shared_ptr<Runner>(loaded_, &all), options_.max_concurrent_decodes);
}

void Engine::FreeResource(DecodeState& state, int64_t slot) {
  CheckOwn(state);
  state.At(slot) = DecodeState::Slot();
}

// Everything was checked.
void Engine::Place(const Prefix& prefix, size_t sample, DecodeState& state, int64_t slot) {
  DecodeState::Slot next;
  next.sequence = prefix.sequence_.Fork();
  next.token = prefix.first_[std::min(sample, prefix.first_.size() - 1)].token;
  next.sampler.emplace(prefix.sampling_, static_cast<int>(sample), prefix.prompt_);
  next.sampler->Add(next.token);
  next.logits = prefix.logits_;
  state.At(slot) = std::move(next);
}

void Engine::Insert(const Prefix& prefix, DecodeState& state, int64_t slot) {
  CheckSlots(state, {&slot, 1});
  CheckOwn(prefix);
  Place(prefix, 0, state, slot);
}

void Engine::BulkInsert(const Prefix& prefix, DecodeState& state, std::span<const int64_t> slots) {
  CheckSlots(state, slots);
  CheckOwn(prefix);
  if (prefix.first().size() != 1 && prefix.first().size() != slots.size()) {
    ThrowUsage("BulkInsert: {} first tokens for {} slots", prefix.first().size(), slots.size());
  }
  for (size_t i = 0; i < slots.size(); ++i) Place(prefix, i, state, slots[i]);
}

void Engine::InsertPartial(std::span<const Prefilled> prefixes, DecodeState& state, std::span<const int64_t> slots) {
  if (prefixes.size() != slots.size()) ThrowUsage("InsertPartial: {} prompts, {} slots", prefixes.size(), slots.size());
  CheckSlots(state, slots);
  const auto failed = [](const Prefilled& one) { return one.result.rows() == 1 && !one.result.errors[0].empty(); };
  for (const Prefilled& one : prefixes) {
    if (!failed(one)) CheckOwn(one.prefix);
  }
  for (size_t i = 0; i < slots.size(); ++i) {
    if (failed(prefixes[i])) {
      DecodeState::Slot& at = state.At(slots[i]);
      at = DecodeState::Slot();
      at.failed = prefixes[i].result.errors[0];
    } else {
      Place(prefixes[i].prefix, 0, state, slots[i]);
    }
  }
}

ResultTokens Engine::Generate(DecodeState& state) {
  CheckOwn(state);
  const ScopedFloatMode mode;
  // Frees a slot; its last result says why.
  const auto fail = [](DecodeState::Slot& slot, std::string why) {
    const int64_t generated = slot.generated;
    slot = DecodeState::Slot();
    slot.generated = generated;
    slot.failed = std::move(why);
  };
  std::vector<Work> work;
  for (DecodeState::Slot& slot : state.slots_) {
    if (!slot.sequence.open()) continue;
    if (slot.sequence.length() >= runner().context_length()) {
      fail(slot, "the context is full");
    } else {
      work.push_back({slot.sequence.id(), {&slot.token, 1}});
    }
  }
  const Tensor logits = runner().Step(work);
  ResultTokens result;
  int64_t row = 0;
  for (DecodeState::Slot& slot : state.slots_) {
    if (slot.sequence.open()) {
      slot.logits = logits.Select(0, row++);
      try {
        const Sampler::Row in{slot.logits.Values<float>(), slot.sequence.length(), {}, {}, 0};
        const TokenLogprob next = slot.sampler->Next(kernels::ChooseIsa().isa, in, scratch_);
        slot.sampler->Add(next.token);
        slot.token = next.token;
        ++slot.generated;
        result.Add(next.token, true, static_cast<int32_t>(slot.generated), next.logprob);
        continue;
      } catch (const SampleError& failed) {
        fail(slot, failed.message());
      }
    }
    result.Add(0, false, static_cast<int32_t>(std::exchange(slot.generated, 0)), 0, std::exchange(slot.failed, ""));
  }
  return result;
}

}  // namespace octavo::engine
