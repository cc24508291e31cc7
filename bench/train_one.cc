#include <sys/resource.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "bench/train.h"
#include "octavo/base/error.h"
#include "octavo/base/temp_folder.h"
#include "octavo/config/settings.h"
#include "octavo/dist/communicator.h"
#include "octavo/train/trainer.h"

namespace octavo::bench {
namespace {

const TrainSize kSizes[] = {{"S", 256, 6, 8, 1024, 8192, 8, 256}, {"M", 768, 12, 12, 2048, 32000, 4, 512}};

double PeakBytes() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

}  // namespace

const TrainSize& TrainSizeByName(const std::string& name) {
  for (const TrainSize& size : kSizes) {
    if (size.name == name) return size;
  }
  ThrowUsage("size '{}': expected S or M", name);
}

std::vector<std::string> TrainWords(const TrainSize& size, const std::string& recipe, int steps,
                                    const std::string& folder) {
  std::vector<std::string> words = {"run_name=bench",
                                    "base_output_directory=" + folder,
                                    "dataset_type=synthetic",
                                    "dtype=float32",
                                    "remat_policy=none",
                                    "enable_checkpointing=false",
                                    "enable_tensorboard=false",
                                    "profile=true",
                                    "decoder_block=llama2",
                                    fmt::format("base_emb_dim={}", size.emb),
                                    fmt::format("base_num_decoder_layers={}", size.layers),
                                    fmt::format("base_num_query_heads={}", size.heads),
                                    fmt::format("base_num_kv_heads={}", size.heads),
                                    fmt::format("head_dim={}", size.emb / size.heads),
                                    fmt::format("base_mlp_dim={}", size.mlp),
                                    fmt::format("vocab_size={}", size.vocab),
                                    fmt::format("per_device_batch_size={}", size.rows),
                                    fmt::format("max_target_length={}", size.length),
                                    fmt::format("steps={}", steps)};
  if (recipe != "fp32") {
    words.push_back("quantization=" + recipe);
    words.push_back("use_qwix_quantization=true");
  }
  return words;
}

int RunOneTraining(const std::string& size, const std::string& recipe, int steps, int threads) {
  const TempFolder folder;
  const Settings settings =
      Settings::Load({.words = TrainWords(TrainSizeByName(size), recipe, steps + 1, folder.path().string())});
  Log log(STDERR_FILENO, {.level = LogLevel::kWarning});
  ThreadPool pool(ChooseThreads(threads));
  SelfCommunicator self;
  std::vector<double> seconds;
  const train::TrainSummary summary =
      train::Train({.settings = settings,
                    .log = log,
                    .pool = pool,
                    .communicator = self,
                    .isa = kernels::ChooseIsa().isa,
                    .on_step = [&](const train::StepMetrics& m) { seconds.push_back(m.seconds); }});
  seconds.erase(seconds.begin());
  double total = 0;
  for (const double one : seconds) total += one;
  const ops::Profile& profile = summary.profile;
  nlohmann::json sites = nlohmann::json::object();
  for (const ops::ProfileEntry& entry : profile.entries()) {
    if (entry.kind == "matmul") sites[entry.site] = sites.value(entry.site, 0.0) + entry.seconds / steps;
  }
  const double inside = profile.SecondsOf("matmul") + profile.SecondsOf("attention");
  fmt::print("{}\n", nlohmann::json({{"contender", recipe == "fp32" ? "octavo fp32" : "octavo " + recipe},
                                     {"seconds", seconds},
                                     {"peak_bytes", PeakBytes()},
                                     {"outside_share", 1 - inside / total},
                                     {"attributed_share", profile.seconds() / total},
                                     {"quantized_sites", summary.quantized},
                                     {"site_seconds", sites},
                                     {"loss", summary.last_loss},
                                     {"profile", profile.Table()}})
                         .dump());
  return 0;
}

}  // namespace octavo::bench
