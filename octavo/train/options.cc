#include "octavo/train/options.h"

#include <cmath>

#include "octavo/base/error.h"

namespace octavo::train {
namespace {

int64_t AtLeast(const Settings& settings, std::string_view key, int64_t least) {
  const int64_t value = settings.Int(key);
  if (value < least) ThrowUsage("{}={}: expected at least {}", key, value, least);
  return value;
}

// MaxText's -1 or 0 for "never".
int64_t Period(const Settings& settings, std::string_view key) { return std::max<int64_t>(settings.Int(key), 0); }

int64_t RowsOf(double per_device, int64_t accumulation, std::string_view key) {
  const double rows = per_device * static_cast<double>(accumulation);
  if (!(rows >= 1) || rows != std::floor(rows) || rows > 1e9) {
    throw Error(ErrorCode::kUsage, fmt::format("{}={} makes {} sequences a step", key, per_device, rows),
                "expected a whole number of at least 1");
  }
  return static_cast<int64_t>(rows);
}

void CheckMasters(const Settings& settings) {
  for (const char* key : {"weight_dtype", "grad_dtype", "mu_dtype"}) {
    const std::string dtype = settings.Text(key);
    if (dtype.empty() || dtype == "float32") continue;
    throw Error(ErrorCode::kUsage, fmt::format("{}={}: masters, gradients and moments are float32", key, dtype),
                "dtype=bfloat16 rounds the computation and leaves them alone");
  }
}

// remat_policy=custom: each save name is a key with the value remat, device or offload.
ops::RematPolicy RematOf(const Settings& settings) {
  const std::string name = settings.Text("remat_policy");
  if (name == "custom") {
    std::vector<std::string> kept;
    for (const std::string_view save_name : ops::SaveNames()) {
      if (settings.table().Find(save_name) == nullptr) continue;
      const std::string where = settings.Text(save_name);
      if (where == "device" || where == "offload") kept.emplace_back(save_name);
    }
    return ops::CustomRematPolicy(kept);
  }
  if (const std::optional<ops::RematPolicy> policy = ops::RematPolicyByName(name)) return *policy;
  throw Error(ErrorCode::kUsage, fmt::format("remat_policy='{}' is not a policy", name),
              fmt::format("known: {} custom", fmt::join(ops::RematPolicyNames(), " ")));
}

// What each kind of ranks cuts.
constexpr std::pair<std::string_view, std::string_view> kCuts[] = {
    {"fsdp", "base_emb_dim"},         {"tensor", "base_num_query_heads"}, {"expert", "num_experts"},
    {"context", "max_target_length"}, {"sequence", "max_target_length"},  {"pipeline", "base_num_decoder_layers"},
};

// "1, 2, 4 …"
std::string Divisors(int64_t number) {
  std::vector<int64_t> found;
  for (int64_t i = 1; i <= number && found.size() < 4; ++i) {
    if (number % i == 0) found.push_back(i);
  }
  const bool more = found.size() > 3;
  if (more) found.pop_back();
  return fmt::format("{}{}", fmt::join(found, ", "), more ? " …" : "");
}

// Ranks of the settings change no bit and start no process; a number that could not be right is still a mistake.
void CheckParallelism(const Settings& settings) {
  for (const KeyInfo& key : settings.table().keys()) {
    const bool of_ranks = key.name.starts_with("ici_") || key.name.starts_with("dcn_");
    if (!of_ranks || !key.name.ends_with("_parallelism")) continue;
    const int64_t ranks = settings.Int(key.name);
    if (ranks < 1 && ranks != -1) ThrowUsage("{}={}: expected -1 or at least 1", key.name, ranks);
  }
  for (const char* network : {"ici", "dcn"}) {
    for (const auto& [kind, size] : kCuts) {
      const std::string key = fmt::format("{}_{}_parallelism", network, kind);
      const int64_t ranks = settings.Int(key), whole = settings.Int(size);
      if (ranks == -1 || whole < 1 || whole % ranks == 0) continue;
      throw Error(ErrorCode::kUsage, fmt::format("{}={} does not divide {}={}", key, ranks, size, whole),
                  fmt::format("use {}", Divisors(whole)));
    }
  }
}

void ReadCheckpoints(const Settings& settings, TrainOptions& options) {
  options.checkpoints = settings.Bool("enable_checkpointing");
  options.async_checkpoints = settings.Bool("async_checkpointing");
  options.checkpoint_on_start = settings.Bool("save_checkpoint_on_start");
  options.checkpoint_on_completion = settings.Bool("save_checkpoint_on_completion");
  options.checkpoint_period = Period(settings, "checkpoint_period");
  if (!settings.IsNull("max_num_checkpoints_to_keep")) {
    options.checkpoints_kept = AtLeast(settings, "max_num_checkpoints_to_keep", 1);
  }
  options.load_parameters = settings.Text("load_parameters_path");
  options.load_full_state = settings.Text("load_full_state_path");
  if (!options.load_parameters.empty() && !options.load_full_state.empty()) {
    ThrowUsage("give load_parameters_path or load_full_state_path, not both");
  }
}

}  // namespace

optim::ScheduleConfig ScheduleOf(const Settings& settings) {
  optim::ScheduleConfig config;
  config.kind = settings.Text("lr_schedule_type") == "wsd" ? optim::ScheduleKind::kWsd : optim::ScheduleKind::kCosine;
  config.peak = settings.Number("learning_rate");
  config.final_fraction = settings.Number("learning_rate_final_fraction");
  config.warmup_fraction = settings.Number("warmup_steps_fraction");
  config.wsd_decay_fraction = settings.Number("wsd_decay_steps_fraction");
  config.wsd_decay =
      settings.Text("wsd_decay_style") == "cosine" ? optim::DecayStyle::kCosine : optim::DecayStyle::kLinear;
  config.schedule_steps = settings.Int("learning_rate_schedule_steps");
  if (config.schedule_steps == -1) config.schedule_steps = settings.Int("steps");
  return config;
}

optim::OptimizerConfig OptimizerOf(const Settings& settings) {
  optim::OptimizerConfig config;
  config.kind = optim::OptimizerByName(settings.Text("opt_type"));
  config.beta1 = settings.Number("adam_b1");
  config.beta2 = settings.Number("adam_b2");
  config.epsilon = settings.Number("adam_eps");
  config.epsilon_root = settings.Number("adam_eps_root");
  config.weight_decay = settings.Number("adam_weight_decay");
  config.no_decay = settings.List("adamw_mask");
  return config;
}

int64_t ChooseShards(int64_t rows, int64_t accumulation, int64_t asked, bool given) {
  if (given) {
    if (asked < 1 || rows % asked != 0) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("gradient_shards={} does not divide the {} sequences of a step", asked, rows),
                  "choose a divisor, or another per_device_batch_size");
    }
    if (asked % accumulation != 0) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("gradient_accumulation_steps={} does not divide gradient_shards={}", accumulation, asked),
                  "every accumulation step takes whole shards");
    }
    return asked;
  }
  for (const int64_t shards : {asked, int64_t{4}, int64_t{2}, int64_t{1}}) {
    if (shards >= 1 && rows % shards == 0 && shards % accumulation == 0) return shards;
  }
  return accumulation;  // divides the rows, which are a multiple of it
}

TrainOptions TrainOptionsFrom(const Settings& settings) {
  CheckParallelism(settings);
  TrainOptions options;
  options.steps = AtLeast(settings, "steps", 1);
  options.accumulation = AtLeast(settings, "gradient_accumulation_steps", 1);
  options.rows = RowsOf(settings.Number("per_device_batch_size"), options.accumulation, "per_device_batch_size");
  options.length = AtLeast(settings, "max_target_length", 1);
  // The reference's name for the same cut is taken as well; it can only mean one number.
  const int64_t local = settings.Int("quantization_local_shard_count");
  const bool local_given = local > 0;
  const bool given = settings.IsAskedFor("gradient_shards");
  if (given && local_given && local != settings.Int("gradient_shards")) {
    ThrowUsage("gradient_shards={} and quantization_local_shard_count={} are one number; give one of them",
               settings.Int("gradient_shards"), local);
  }
  options.shards = ChooseShards(options.rows, options.accumulation,
                                local_given ? local : settings.Int("gradient_shards"), given || local_given);
  options.schedule = ScheduleOf(settings);
  options.optimizer = OptimizerOf(settings);
  CheckMasters(settings);
  options.clip_threshold = settings.Number("gradient_clipping_threshold");
  options.z_loss_multiplier = settings.Number("z_loss_multiplier");
  options.vocab_tiling = static_cast<int>(AtLeast(settings, "num_vocab_tiling", 1));
  options.routed_bias_update_rate = settings.Number("routed_bias_update_rate");
  options.remat = RematOf(settings);
  options.init_seed = static_cast<uint64_t>(settings.Int("init_weights_seed"));
  options.data_seed = static_cast<uint64_t>(settings.Int("data_shuffle_seed"));
  ReadCheckpoints(settings, options);
  options.eval_interval = Period(settings, "eval_interval");
  options.eval_steps = Period(settings, "eval_steps");
  options.eval_start = Period(settings, "eval_start_step");
  const double eval_rows = settings.Number("eval_per_device_batch_size");
  options.eval_rows = eval_rows > 0 ? RowsOf(eval_rows, 1, "eval_per_device_batch_size") : options.rows;
  options.target_eval_loss = settings.Number("target_eval_loss");
  options.abort_on_nan = settings.Bool("abort_on_nan_loss");
  options.abort_on_inf = settings.Bool("abort_on_inf_loss");
  options.tensorboard = settings.Bool("enable_tensorboard");
  options.profile = settings.Bool("profile");
  options.metrics_file = settings.Text("metrics_file");
  return options;
}

}  // namespace octavo::train
