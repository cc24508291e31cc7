#include "octavo/train/session.h"

#include <algorithm>

#include "octavo/base/error.h"
#include "octavo/base/publish.h"
#include "octavo/train/model_plan.h"
#include "octavo/train/run_log.h"
#include "octavo/train/shards.h"
#include "octavo/version.h"

namespace octavo::train {
Session::Session(const TrainRequest& request)
    : request_(request), options_(TrainOptionsFrom(request.settings)), health_(request.settings) {
  request.settings.RequireSupported();
  recipe_ = quant::ChooseRecipe(request.settings);
  for (const std::string& recipe : request.settings.List("quant_shadow")) quant::NamedRecipe(request.settings, recipe);
  ShardsOf(options_.shards, 0, request.communicator.size());
  const optim::Schedule schedule(options_.schedule);  // throws; so does what comes before the folder is made
  MakeModelAndPlan();
  data_ = data::OpenTrainData(request.settings, DataOptionsOf(options_.rows));
  // What is wrong with the first batch (a token that the vocabulary lacks) should be said before a model is made.
  const std::string first = data_->State();
  data_->Next();
  data_->Restore(first);
  if (options_.eval_interval > 0 && OpenEval() == nullptr) {
    throw Error(ErrorCode::kUsage,
                fmt::format("eval_interval={} but there is no held-out data", options_.eval_interval),
                "give eval_data_files=FILE, or eval_fraction=0.05 to hold out a part of the training data");
  }
  run_path_ = RunPath(request.settings);
  if (is_first_rank()) folder_ = std::make_unique<RunFolder>(request.settings, run_path_);
  request.communicator.Barrier();
  store_ = std::make_unique<CheckpointStore>(
      run_path_ / "checkpoints", StoreOptions{.keep = options_.checkpoints_kept, .async = options_.async_checkpoints});
  if (is_first_rank()) PrintStart();
  RestoreOrInitialize();
  stepper_ = std::make_unique<Stepper>(parts(), options_);
  stepper_->set_on_gradients(request.on_gradients);
  stepper_->set_on_shard([this] { health_.EndShard(); });
  for (const std::string& recipe : request.settings.List("quant_shadow")) {
    shadows_.push_back(std::make_unique<Shadow>(request.settings, recipe, parts(), options_));
  }
  if (!is_first_rank()) return;
  folder_->SaveConfig(request.settings);
  PublishFile(folder_->plan(), quant::PlanTable(plan_));
}

void Session::MakeModelAndPlan() {
  model_ = models::MakeModel(models::ModelConfigFrom(request_.settings));
  plan_ = PlanOf(*model_, recipe_, options_);
  flops_ = FlopsOfStep(model_->config(), options_.rows, options_.length);
  if (recipe_.name.empty()) return;
  quant::ProviderOptions options;
  options.health = health_.sink();
  provider_ = std::make_unique<quant::Provider>(plan_, options);
}

data::DataOptions Session::DataOptionsOf(int64_t rows) const {
  return {.rows = rows, .length = options_.length, .vocab_size = model_->config().vocab_size};
}

std::unique_ptr<data::BatchSource> Session::OpenEval() const {
  return data::OpenEvalData(request_.settings, DataOptionsOf(options_.eval_rows));
}

StepParts Session::parts() {
  return {*model_,       *optimizer_,  state_,    plan_, provider_.get(), request_.communicator,
          request_.pool, request_.isa, workspace_};
}

RunState Session::state() { return {*model_, *optimizer_, state_}; }

void Session::RestoreAll(const Checkpoint& checkpoint) {
  RestoreParameters(checkpoint, *model_);
  optimizer_ = std::make_unique<optim::Optimizer>(options_.optimizer, model_->parameters());
  RestoreOptimizer(checkpoint, state());
  first_step_ = checkpoint.manifest().step;
}

// In this order: this run's newest good checkpoint; load_full_state_path or load_parameters_path; fresh parameters.
void Session::RestoreOrInitialize() {
  Log quiet([](std::string_view) {}, {.level = LogLevel::kError});
  if (!is_first_rank()) request_.communicator.Barrier();  // the first rank cleans up and looks first
  const std::optional<Checkpoint> latest = store_->OpenLatest(is_first_rank() ? request_.log : quiet);
  if (is_first_rank()) request_.communicator.Barrier();
  if (latest) {
    RestoreAll(*latest);
    resumed_ = true;
    data_->Restore(latest->manifest().data_state);
    if (is_first_rank()) {
      request_.log.Info("resumed   {}   step {} of {}", latest->folder().string(), first_step_, options_.steps);
    }
    return;
  }
  if (!options_.load_full_state.empty()) {
    const Checkpoint checkpoint(options_.load_full_state);
    RestoreAll(checkpoint);
    data_->Restore(checkpoint.manifest().data_state);
    return;
  }
  if (!options_.load_parameters.empty()) {
    LoadParameters(options_.load_parameters, *model_);
  } else {
    models::Initialize(*model_, RngKey::FromSeed(options_.init_seed), request_.pool);
  }
  optimizer_ = std::make_unique<optim::Optimizer>(options_.optimizer, model_->parameters());
}

CheckpointContent Session::Content(int64_t step) {
  return ContentOf(state(), step, request_.settings.EffectiveYaml(), recipe_, data_->State());
}

// For the estimate, before anything is restored: by the newest checkpoint, which may yet prove damaged.
int64_t Session::StepsLeft() const {
  const std::vector<int64_t> saved = store_->Steps();
  if (!saved.empty()) return std::max<int64_t>(options_.steps - saved.back(), 0);
  if (options_.load_full_state.empty()) return options_.steps;
  return std::max<int64_t>(options_.steps - Checkpoint(options_.load_full_state).manifest().step, 0);
}

void Session::PrintStart() {
  Log& log = request_.log;
  const models::ModelConfig& config = model_->config();
  const int64_t parameters = models::ParameterCount(*model_);
  log.Info("octavo {}   {} {}   {} thread{}   {} rank{}   seed {}", OCTAVO_VERSION, ProcessorName(),
           kernels::NameOf(request_.isa), request_.pool.size(), request_.pool.size() == 1 ? "" : "s",
           request_.communicator.size(), request_.communicator.size() == 1 ? "" : "s", options_.init_seed);
  log.Info("config    {} + {} override{}   -> {}", request_.settings.config_name(), request_.settings.overrides(),
           request_.settings.overrides() == 1 ? "" : "s", folder_->config().string());
  if (const std::string note = request_.settings.IgnoredNote(); !note.empty()) log.Info("note: {}", note);
  const MemoryEstimate memory = EstimateMemory(config, parameters, options_);
  log.Info("model     {}   {} layer{}   {} parameters   {} of {}", config.model_name, config.num_decoder_layers,
           config.num_decoder_layers == 1 ? "" : "s", CountText(parameters), SizeText(memory.total()),
           SizeText(AvailableMemory()));
  PrintPlan();
  log.Info("data      {}", data_->Describe());
  log.Info("batch     {} × {} tokens in {} shard{}   remat {}", options_.rows, options_.length, options_.shards,
           options_.shards == 1 ? "" : "s", options_.remat.name);
  ops::Context context(request_.pool, request_.isa, workspace_);
  log.Info("estimate  {}",
           EstimateText(EstimateStepSeconds(context, flops_, plan_, options_, parameters), StepsLeft()));
  RequireMemory(memory);
}

void Session::PrintPlan() {
  Log& log = request_.log;
  if (recipe_.name.empty()) {
    log.Info("plan      no quantization, {} matmuls in {}   -> {}", plan_.sites.size(),
             model_->config().dtype == DType::kBF16 ? "bfloat16" : "float32", folder_->plan().string());
    return;
  }
  const PlanSummary summary = SummarizePlan(plan_);
  log.Info("plan      {}   -> {}", summary.coverage, folder_->plan().string());
  if (!summary.left_in_float.empty()) log.Info("          {}", summary.left_in_float);
}

void Session::RequireMemory(const MemoryEstimate& memory) {
  const std::optional<MemoryProblem> problem = FindMemoryProblem(memory, options_, AvailableMemory(), PhysicalMemory());
  if (!problem) return;
  if (problem->cannot_fit) throw Error(ErrorCode::kUsage, problem->text, problem->fix);
  request_.log.Warning("{}\n  {}", problem->text, problem->fix);
}

}  // namespace octavo::train
