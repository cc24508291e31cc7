#include "octavo/engine/serving_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "octavo/base/error.h"
#include "octavo/base/process_memory.h"
#include "octavo/engine/kv_memory.h"
#include "octavo/engine/model_tokenizer.h"
#include "octavo/engine/pack_weights.h"
#include "octavo/numerics/format.h"
#include "octavo/quant/kv_quant.h"
#include "octavo/tensor/memory.h"
#include "octavo/weights/load_memory.h"

namespace octavo::engine {
namespace {

constexpr double kGiB = double{1 << 30};
constexpr int64_t kDefaultStep = 256, kLargestStep = 1 << 20, kMostSlots = 1024;

// A key that counts something: what is given must be a number of its kind, never the default in disguise.
int64_t Count(const Settings& settings, std::string_view key, int64_t most = INT64_MAX) {
  const int64_t count = settings.Int(key);
  if (count >= 1 && count <= most) return count;
  throw Error(ErrorCode::kUsage,
              fmt::format("{}={} ({}): expected {}", key, count, settings.OriginOf(key),
                          count < 1 ? "at least 1" : fmt::format("at most {}", most)),
              "leave it out for the default");
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
  if (settings.IsAskedFor("max_target_length")) options.context_length = Count(settings, "max_target_length");
  if (settings.Bool("quantize_kvcache")) {
    options.kv = ops::KvFormat{quant::ParseKvFormat(settings.Text("kv_quant_dtype")),
                               quant::ParseKvAxes(settings.Text("kv_quant_axis")) == quant::KvAxes::kDkv};
  }
  if (!settings.Bool("mla_naive_kvcache")) {
    throw Error(ErrorCode::kUsage, "mla_naive_kvcache=false: keys and values are cached expanded, never latent",
                "drop the key; to save memory use quantize_kvcache=true");
  }
  options.allow_batch_coupled = settings.Bool("allow_batch_coupled");
  if (settings.IsAskedFor("enable_prefix_caching")) options.prefix_cache = settings.Bool("enable_prefix_caching");
  if (settings.IsAskedFor("prefix_caching_hbm_byte")) options.kv_bytes = Count(settings, "prefix_caching_hbm_byte");
  if (settings.IsAskedFor("prefill_chunk_size")) {
    options.step_tokens = Count(settings, "prefill_chunk_size", kLargestStep);
  }
  if (settings.IsAskedFor("per_device_batch_size")) {
    // A share of a row is a whole one here.
    const double rows = settings.Number("per_device_batch_size");
    if (!(rows > 0 && rows <= static_cast<double>(kMostSlots))) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("per_device_batch_size={} ({}): expected 1 to {} slots", rows,
                              settings.OriginOf("per_device_batch_size"), kMostSlots),
                  "leave it out for the default");
    }
    options.slots = std::max<int64_t>(1, static_cast<int64_t>(rows));
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
  model->Load();
  return model;
}

ServingModel::~ServingModel() = default;

ServingModel::ServingModel(const ServingOptions& options, weights::StoredModel stored)
    : options_(options), stored_(std::move(stored)), isa_(kernels::ChooseIsa().isa), pool_(options.threads) {
  if (options_.slots < 1) ThrowUsage("max_concurrent_decodes={} must be at least 1", options_.slots);
  if (options_.context_length < 0 || options_.step_tokens < 0 || options_.kv_bytes < 0) {
    ThrowUsage("ServingOptions: context_length {}, step_tokens {}, kv_bytes {}: below 0", options_.context_length,
               options_.step_tokens, options_.kv_bytes);
  }
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
void ServingModel::CheckMemory(weights::ParameterReader& reader) const {
  const int64_t available = options_.available_bytes > 0 ? options_.available_bytes : AvailableMemory();
  if (!options_.check_memory || available == 0) return;
  const weights::LoadMemory model = weights::LoadMemoryOf(reader);
  const int64_t page = PageBytes(reader.model(), kv_);
  const int64_t pages = options_.slots * ((context_ + ops::kPageTokens - 1) / ops::kPageTokens);
  const int64_t kv = options_.kv_bytes > 0 ? options_.kv_bytes : pages * page;
  const models::ModelConfig& config = stored_.config;
  const int64_t work =
      options_.step_tokens * 4 * (8 * config.emb_dim + 3 * config.mlp_dim) + options_.slots * 4 * config.vocab_size;
  const int64_t total = model.serving + kv + work;
  const auto gib = [](int64_t bytes) { return static_cast<double>(bytes) / kGiB; };
  if (total > available) {
    throw Error(ErrorCode::kUsage,
                fmt::format("model {:.1f} + KV {:.1f} + work {:.1f} = {:.1f} GiB, available {:.1f} GiB",
                            gib(model.serving), gib(kv), gib(work), gib(total), gib(available)),
                MemoryHint(available - model.serving - work, pages, page));
  }
  if (model.peak > available) {
    throw Error(
        ErrorCode::kUsage,
        fmt::format("loading the model needs {:.1f} GiB for a moment ({:.1f} once it runs), available {:.1f} GiB",
                    gib(model.peak), gib(model.serving), gib(available)),
        stored_.quantized() ? "free memory" : "free memory, or convert the model first: octavo convert");
  }
}

// What would fit into the memory that the model leaves: fewer slots, a shorter context, smaller keys and values.
std::string ServingModel::MemoryHint(int64_t left, int64_t pages, int64_t page) const {
  constexpr int64_t kLeastContext = 256;
  std::vector<std::string> ways;
  const int64_t slot = std::max<int64_t>(pages / options_.slots * page, 1);
  const int64_t slots = left / slot;  // of the whole context
  const auto context = [&](int64_t among) { return left / std::max<int64_t>(page, 1) / among * ops::kPageTokens; };
  if (options_.kv_bytes > 0) {
    if (left >= page) ways.push_back(fmt::format("prefix_caching_hbm_byte={}", left));
  } else if (slots >= 1) {
    ways.push_back(fmt::format("max_concurrent_decodes={}", slots));
    if (context(options_.slots) >= kLeastContext) {
      ways.push_back(fmt::format("max_target_length={}", context(options_.slots)));
    }
  } else if (left > 0 && context(1) >= kLeastContext) {
    ways.push_back(
        fmt::format("{}max_target_length={}", options_.slots > 1 ? "max_concurrent_decodes=1 with " : "", context(1)));
  }
  const int64_t smallest = PageBytes(*models::MakeModel(stored_.config), {Format::kInt8, false});
  if (!kv_.quantized() && options_.kv_bytes == 0 && pages * smallest <= left) ways.push_back("quantize_kvcache=true");
  if (ways.empty()) return stored_.quantized() ? "free memory" : "quantize the model further, or free memory";
  const std::string last = ways.back();
  ways.pop_back();
  return fmt::format("try {}{}{}", fmt::join(ways, ", "), ways.empty() ? "" : " or ", last);
}

void ServingModel::Load() {
  weights::LoadOptions load;
  load.recipe = options_.recipe;
  load.must_be_quantized = options_.must_be_quantized;
  load.dtype = options_.dtype;
  load.max_target_length = context_;
  {
    weights::ParameterReader reader(stored_, load, pool_, isa_);
    kv_ = KvFormatFor(reader.model(), reader.plan(), options_.kv);
    CheckMemory(reader);
    loaded_ = weights::LoadModel(reader);
  }
  if (!loaded_.recipe_name.empty()) {
    provider_ = std::make_unique<quant::Provider>(*loaded_.plan);
    interceptor_ = provider_.get();
  }
  lora_ = std::make_unique<quant::LoraProvider>(interceptor_);
  interceptor_ = lora_.get();
  adapters_ = std::make_unique<Adapters>(*loaded_.model, *lora_);
  for (const auto& [name, folder] : options_.adapters) adapters_->Load(name, folder);
  const RunnerParts parts{*loaded_.model, interceptor_, &loaded_.state, pool_, isa_};
  if (provider_ != nullptr) {
    provider_->StartStep();  // weights that stay floats never change either: each is packed once
    loaded_.parameter_bytes = PackWeights(parts, *provider_, options_.allow_batch_coupled).bytes;
  }
  ReleaseFreeTensorMemory();  // parameters on their way, and the codes that are in panels now
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
