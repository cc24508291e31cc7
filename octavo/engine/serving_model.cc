#include "octavo/engine/serving_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "octavo/base/error.h"
#include "octavo/engine/kv_memory.h"
#include "octavo/engine/model_tokenizer.h"
#include "octavo/engine/pack_weights.h"
#include "octavo/numerics/format.h"
#include "octavo/quant/kv_quant.h"

namespace octavo::engine {
namespace {

constexpr double kGiB = double{1 << 30};
constexpr int64_t kDefaultStep = 256;

int64_t AvailableMemory() {
  std::ifstream file("/proc/meminfo");
  std::string word;
  while (file >> word) {
    int64_t kib = 0;
    if (word == "MemAvailable:" && file >> kib) return kib << 10;
  }
  return 0;  // unknown
}

// A checkpoint of a run is called by both: "demo-200" says more to clients than "200".
std::string NameOf(const weights::StoredModel& stored) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path folder = fs::absolute(stored.path, error).lexically_normal();
  const fs::path checkpoints = folder.parent_path();
  if (error || folder.filename() != stored.name || checkpoints.filename() != "checkpoints") return stored.name;
  return fmt::format("{}-{}", checkpoints.parent_path().filename().string(), stored.name);
}

std::string KvName(const ops::KvFormat& kv) { return std::string(Info(kv.format).name); }

}  // namespace

ServingOptions ServingOptionsFrom(const Settings& settings, const quant::RecipeChoice& recipe, std::string path) {
  ServingOptions options;
  options.path = std::move(path);
  options.tokenizer_path = settings.Text("tokenizer_path");
  options.must_be_quantized = settings.Bool("checkpoint_is_quantized");
  if (settings.IsAskedFor("quantization") || settings.IsAskedFor("recipe")) options.recipe = &recipe;
  if (settings.IsAskedFor("dtype")) options.dtype = models::ModelConfigFrom(settings).dtype;
  if (settings.IsAskedFor("max_target_length")) options.context_length = settings.Int("max_target_length");
  if (settings.Bool("quantize_kvcache")) {
    options.kv = ops::KvFormat{quant::ParseKvFormat(settings.Text("kv_quant_dtype")),
                               quant::ParseKvAxes(settings.Text("kv_quant_axis")) == quant::KvAxes::kDkv};
  }
  if (!settings.Bool("mla_naive_kvcache")) {
    throw Error(ErrorCode::kUsage, "mla_naive_kvcache=false: keys and values are cached expanded, never latent",
                "drop the key; to save memory use quantize_kvcache=true");
  }
  options.allow_batch_coupled = settings.Bool("allow_batch_coupled");
  if (settings.IsAskedFor("prefill_chunk_size")) options.step_tokens = settings.Int("prefill_chunk_size");
  if (settings.IsAskedFor("per_device_batch_size")) {
    options.slots = std::max<int64_t>(1, static_cast<int64_t>(settings.Number("per_device_batch_size")));
  }
  const std::filesystem::path adapter = settings.Text("hf_lora_adapter_path");
  if (!adapter.empty()) {
    const std::filesystem::path named = adapter.has_filename() ? adapter : adapter.parent_path();
    options.adapters.emplace_back(named.filename().string(), adapter.string());
  }
  return options;
}

std::unique_ptr<ServingModel> ServingModel::Open(const ServingOptions& options) {
  auto model = std::unique_ptr<ServingModel>(new ServingModel(options, weights::OpenStored(options.path)));
  model->OpenTokenizer();
  model->CheckMemory();
  model->Load();
  return model;
}

ServingModel::~ServingModel() = default;

ServingModel::ServingModel(const ServingOptions& options, weights::StoredModel stored)
    : options_(options), stored_(std::move(stored)), isa_(kernels::ChooseIsa().isa), pool_(options.threads) {
  if (options_.slots < 1) ThrowUsage("max_concurrent_decodes={} must be at least 1", options_.slots);
  if (options_.step_tokens == 0) options_.step_tokens = kDefaultStep;
  options_.step_tokens = std::max(options_.step_tokens, options_.slots);
  const models::ModelConfig& config = stored_.config;
  max_positions_ = config.max_target_length;
  context_ = options_.context_length > 0 ? options_.context_length : std::min(max_positions_, kDefaultContext);
  if (context_ > max_positions_) {
    throw Error(ErrorCode::kUsage,
                fmt::format("max_target_length={}, the model takes {} tokens", context_, max_positions_),
                fmt::format("max_target_length={} at most", max_positions_));
  }
  const DType dtype = options_.dtype.value_or(config.dtype);
  kv_ = options_.kv.value_or(ops::KvFormat{dtype == DType::kBF16 ? Format::kBF16 : Format::kF32, false});
}

void ServingModel::OpenTokenizer() {
  namespace fs = std::filesystem;
  const std::string path = options_.tokenizer_path.empty() ? TokenizerPathOf(stored_) : options_.tokenizer_path;
  if (path.empty()) {
    throw Error(ErrorCode::kFile,
                fmt::format("no tokenizer.json, tokenizer.model or tiktoken file beside {}", stored_.path.string()),
                "tokenizer_path=FILE, or tokenizer_path=bytes for a model of bytes");
  }
  tokenizer_ = engine::OpenTokenizer(path, stored_.config.vocab_size);
  std::error_code ignored;
  const fs::path folder = fs::is_directory(stored_.path, ignored) ? stored_.path : stored_.path.parent_path();
  defaults_ = ReadGenerationConfig(folder);
  std::erase_if(defaults_.end_ids, [&](int32_t id) { return id >= stored_.config.vocab_size; });
  const auto& eos = tokenizer_->roles().eos;
  if (eos && std::ranges::find(defaults_.end_ids, *eos) == defaults_.end_ids.end()) defaults_.end_ids.push_back(*eos);
}

// Before anything large is read.
void ServingModel::CheckMemory() const {
  const auto empty = models::MakeModel(stored_.config);
  const int64_t page = PageBytes(*empty, kv_);
  const int64_t pages = options_.slots * ((context_ + ops::kPageTokens - 1) / ops::kPageTokens);
  const int64_t kv = options_.kv_bytes > 0 ? options_.kv_bytes : pages * page;
  const bool shrinks = options_.recipe != nullptr && !options_.recipe->empty() && !stored_.quantized();
  const int64_t model = shrinks ? std::min(stored_.stored_bytes, models::ParameterCount(*empty)) : stored_.stored_bytes;
  const models::ModelConfig& config = stored_.config;
  const int64_t work =
      options_.step_tokens * 4 * (8 * config.emb_dim + 3 * config.mlp_dim) + options_.slots * 4 * config.vocab_size;
  const int64_t available = AvailableMemory();
  if (!options_.check_memory || available == 0 || model + kv + work <= available) return;
  // What would fit beside the model: fewer slots, then a shorter context, then a model of fewer bytes.
  const int64_t left = available - model - work;
  const int64_t slot = std::max<int64_t>(pages / std::max<int64_t>(options_.slots, 1) * page, 1);
  std::string hint = "quantize the model further, or free memory";
  if (left >= slot && options_.slots > 1) {
    const int64_t each = left / page / options_.slots * ops::kPageTokens;
    hint = fmt::format("try max_concurrent_decodes={}, {}quantize_kvcache=true", left / slot,
                       each >= 256 ? fmt::format("max_target_length={} or ", each) : "or ");
  } else if (const int64_t tokens = left / std::max<int64_t>(page, 1) * ops::kPageTokens; tokens >= 256) {
    hint = fmt::format("try {}max_target_length={} or quantize_kvcache=true",
                       options_.slots > 1 ? "max_concurrent_decodes=1, " : "", tokens);
  }
  throw Error(
      ErrorCode::kUsage,
      fmt::format("model {:.1f} + KV {:.1f} + work {:.1f} = {:.1f} GiB, available {:.1f} GiB",
                  static_cast<double>(model) / kGiB, static_cast<double>(kv) / kGiB, static_cast<double>(work) / kGiB,
                  static_cast<double>(model + kv + work) / kGiB, static_cast<double>(available) / kGiB),
      hint);
}

void ServingModel::Load() {
  weights::LoadOptions load;
  load.recipe = options_.recipe;
  load.must_be_quantized = options_.must_be_quantized;
  load.dtype = options_.dtype;
  load.max_target_length = context_;
  loaded_ = weights::LoadModel(stored_, load, pool_, isa_);
  if (!loaded_.recipe_name.empty()) {
    provider_ = std::make_unique<quant::Provider>(*loaded_.plan);
    interceptor_ = provider_.get();
  }
  kv_ = KvFormatFor(*loaded_.model, *loaded_.plan, options_.kv);
  lora_ = std::make_unique<quant::LoraProvider>(interceptor_);
  interceptor_ = lora_.get();
  adapters_ = std::make_unique<Adapters>(*loaded_.model, *lora_);
  for (const auto& [name, folder] : options_.adapters) adapters_->Load(name, folder);
  const RunnerParts parts{*loaded_.model, interceptor_, &loaded_.state, pool_, isa_};
  if (provider_ != nullptr) {
    provider_->StartStep();  // weights that stay floats never change either: each is packed once
    loaded_.parameter_bytes = PackWeights(parts, *provider_, options_.allow_batch_coupled).bytes;
  }
  RunnerOptions runner;
  runner.context_length = context_;
  runner.kv = kv_;
  runner.kv_bytes = options_.kv_bytes;
  runner.sequences = options_.slots;
  runner.prefix_cache = options_.prefix_cache;
  runner_ = MakeRunner(parts, runner);
  kv_bytes_ = runner_->pages() * PageBytes(*loaded_.model, kv_);

  info_.id = options_.name.empty() ? NameOf(stored_) : options_.name;
  info_.fingerprint = loaded_.fingerprint;
  info_.quantization = loaded_.recipe_name.empty() ? "none" : loaded_.recipe_name;
  info_.parameters = models::ParameterCount(*loaded_.model);
  info_.bytes = loaded_.parameter_bytes;
  info_.context_length = context_;
  info_.vocabulary_size = stored_.config.vocab_size;
}

std::vector<int32_t> ServingModel::EncodePrompt(std::string_view text) const {
  return engine::EncodePrompt(*tokenizer_, text);
}

std::unique_ptr<Scheduler> ServingModel::Start() {
  SchedulerOptions options;
  options.model = info_;
  options.end_ids = defaults_.end_ids;
  options.max_position_embeddings = max_positions_;
  options.max_queue = options_.max_queue;
  options.batch.slots = options_.slots;
  options.batch.step_tokens = options_.step_tokens;
  options.batch.isa = isa_;
  return std::make_unique<Scheduler>(*runner_, *tokenizer_, std::move(options), adapters_.get());
}

std::string ServingModel::Describe() const {
  return fmt::format("{}   {}   ctx {}   {} slot{}   KV {} {:.2f} GiB   bits {:.6}…", info_.id,
                     info_.quantization == "none" ? "float" : info_.quantization, context_, options_.slots,
                     options_.slots == 1 ? "" : "s", KvName(kv_), static_cast<double>(kv_bytes_) / kGiB,
                     info_.fingerprint);
}

}  // namespace octavo::engine
