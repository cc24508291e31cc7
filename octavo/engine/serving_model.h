// A model opened to be served: weights (mapped, quantized already or on load), tokenizer, what its files say about
// generating, LoRA adapters, cache and scheduler, in one object that owns them all. The one way in for `octavo
// generate`, `chat`, `serve` and `verify`.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "octavo/config/settings.h"
#include "octavo/engine/adapters.h"
#include "octavo/engine/generation_config.h"
#include "octavo/engine/model_runner.h"
#include "octavo/engine/scheduler.h"
#include "octavo/quant/provider.h"
#include "octavo/text/tokenizer.h"
#include "octavo/weights/load_model.h"
#include "octavo/weights/parameter_reader.h"
#include "octavo/weights/stored_model.h"

namespace octavo::engine {

struct ServingOptions {
  std::string path;            // anything weights::OpenStored takes
  std::string name;            // as clients call it; empty: the model's own
  std::string tokenizer_path;  // empty: the model's own
  // Quantize on load; nullptr: as the model is stored. Codes that are stored run under their own recipe only.
  const quant::RecipeChoice* recipe = nullptr;
  bool must_be_quantized = false;  // checkpoint_is_quantized=true
  std::optional<DType> dtype;
  int64_t context_length = 0;       // max_target_length; 0: the model's, kDefaultContext at most
  std::optional<ops::KvFormat> kv;  // unset: the type of the computation
  int64_t kv_bytes = 0;             // of all pages, running and remembered; 0: a whole context for each slot
  bool prefix_cache = true;
  int64_t slots = 8;        // max_concurrent_decodes
  int64_t step_tokens = 0;  // rows of one step; 0: 256, or the slots if those are more
  int64_t max_queue = 256;
  std::vector<std::pair<std::string, std::string>> adapters;  // names and PEFT folders
  int threads = 1;
  bool check_memory = true;
  int64_t available_bytes = 0;       // of memory; 0: what the system says
  bool allow_batch_coupled = false;  // serve although one request's scale may depend on another's
};

inline constexpr int64_t kDefaultContext = 4096;

// What the keys say: tokenizer_path, checkpoint_is_quantized, dtype, max_target_length, quantize_kvcache with
// kv_quant_dtype and kv_quant_axis, enable_prefix_caching, prefix_caching_hbm_byte, prefill_chunk_size,
// per_device_batch_size (slots), hf_lora_adapter_path. Keys that the user did not give leave the defaults; numbers
// below 1 are usage errors. `recipe` must outlive the options; it is used when quantization= or recipe= was asked for.
ServingOptions ServingOptionsFrom(const Settings& settings, const quant::RecipeChoice& recipe, std::string path);

class ServingModel {
 public:
  // Throws the errors of OpenStored and LoadModel, and: no tokenizer, a tokenizer of another model, too little memory.
  static std::unique_ptr<ServingModel> Open(const ServingOptions& options);
  ~ServingModel();

  const text::Tokenizer& tokenizer() const { return *tokenizer_; }
  const weights::StoredModel& stored() const { return stored_; }
  weights::LoadedModel& loaded() { return loaded_; }
  const ModelInfo& info() const { return info_; }
  const GenerationDefaults& defaults() const { return defaults_; }  // end_ids: all of the model's
  const ServingOptions& options() const { return options_; }
  int64_t context_length() const { return runner_->context_length(); }
  int64_t max_position_embeddings() const { return max_positions_; }
  int64_t kv_bytes() const { return kv_bytes_; }
  ThreadPool& pool() { return pool_; }
  kernels::Isa isa() const { return isa_; }
  ops::Interceptor* interceptor() { return interceptor_; }
  Adapters& adapters() { return *adapters_; }
  const Adapters& adapters() const { return *adapters_; }
  Runner& runner() { return *runner_; }  // nobody else's while a scheduler runs

  // The ids of a prompt as text: with the beginning that the tokenizer puts before a text, without its end. Special
  // tokens written in the text are plain text.
  std::vector<int32_t> EncodePrompt(std::string_view text) const;

  // Starts the engine thread. One scheduler at a time; it must go before the model does.
  std::unique_ptr<Scheduler> Start();

  // "x-int8   ctx 4096   8 slots   KV int8 0.9 GiB   bits 9f3c1e…".
  std::string Describe() const;

 private:
  ServingModel(const ServingOptions& options, weights::StoredModel stored);
  void OpenTokenizer();
  void CheckMemory(weights::ParameterReader& reader) const;
  std::string MemoryHint(int64_t left, int64_t pages, int64_t page) const;
  void Load();

  ServingOptions options_;
  weights::StoredModel stored_;
  kernels::Isa isa_;
  ThreadPool pool_;
  std::unique_ptr<text::Tokenizer> tokenizer_;
  GenerationDefaults defaults_;
  ops::KvFormat kv_;
  int64_t context_ = 0, max_positions_ = 0, kv_bytes_ = 0;
  weights::LoadedModel loaded_;
  std::unique_ptr<quant::Provider> provider_;
  ops::Interceptor* interceptor_ = nullptr;
  std::unique_ptr<quant::LoraProvider> lora_;
  std::unique_ptr<Adapters> adapters_;
  std::unique_ptr<Runner> runner_;
  ModelInfo info_;
};

}  // namespace octavo::engine
