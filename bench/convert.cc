// Converting a random llama of 1.1 B parameters in bf16 against copying its files: time, peak memory, sizes. Usage:
// bench_convert [recipe [layers]].
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>

#include "bench/common/driver.h"
#include "octavo/base/error.h"
#include "octavo/base/temp_folder.h"
#include "octavo/checkpoint/checkpoint_writer.h"
#include "octavo/convert/convert.h"
#include "octavo/kernels/isa.h"
#include "octavo/models/model.h"
#include "octavo/weights/model_json.h"

#include <nlohmann/json.hpp>

namespace octavo {
namespace {

namespace fs = std::filesystem;

double Seconds(const std::function<void()>& action) {
  const auto start = std::chrono::steady_clock::now();
  action();
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
  return passed.count();
}

// In a process of its own, so that its memory is its own too.
void InChild(const std::function<void()>& action) {
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) {
    int code = 0;
    try {
      action();
    } catch (const Error& error) {
      fmt::print(stderr, "error: {}\n", error.what());
      code = 1;
    }
    std::fflush(stdout);
    ::_exit(code);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) throw Error(ErrorCode::kJob, "a child failed");
}

models::ModelConfig Llama(int64_t layers) {
  models::ModelConfig config;
  config.model_name = "llama-1b";
  config.emb_dim = 2048;
  config.mlp_dim = 8192;
  config.num_query_heads = 32;
  config.num_kv_heads = 8;
  config.head_dim = 64;
  config.vocab_size = 32000;
  config.num_decoder_layers = layers;
  return config;
}

// Sums of four bytes, about normal, as bf16.
Tensor RandomTensor(const Shape& shape, uint64_t seed) {
  Tensor tensor = Tensor::Empty(shape, DType::kBF16);
  uint64_t state = seed * 0x9e3779b97f4a7c15ULL + 1;
  auto* data = reinterpret_cast<uint16_t*>(tensor.MutableRawData());
  for (int64_t i = 0; i < shape.size(); ++i) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    const int sum = static_cast<int>(state & 255) + static_cast<int>(state >> 8 & 255) +
                    static_cast<int>(state >> 16 & 255) + static_cast<int>(state >> 24 & 255) - 510;
    const float value = static_cast<float>(sum) * 1e-4f;
    uint32_t bits = 0;
    std::memcpy(&bits, &value, 4);
    data[i] = static_cast<uint16_t>(bits >> 16);
  }
  return tensor;
}

void WriteModel(const fs::path& folder, int64_t layers) {
  const std::unique_ptr<models::Model> model = models::MakeModel(Llama(layers));
  std::vector<PlannedParameter> planned;
  for (const ops::Parameter* parameter : model->parameters()) {
    planned.push_back({parameter->name, parameter->shape().size() * 2});
  }
  CheckpointWriter writer(folder, planned, {});
  uint64_t seed = 0;
  for (const ops::Parameter* parameter : model->parameters()) {
    const Tensor value = RandomTensor(parameter->shape(), ++seed);
    const Shape& shape = value.shape();
    writer.Add(parameter->name, {{{parameter->name, "BF16", {shape.begin(), shape.end()}}, value}});
  }
  writer.manifest().kind = "params";
  writer.manifest().model = weights::ModelToJson(model->config()).dump();
  writer.Close();
  writer.Publish();
}

// Read and write in pieces of 1 MiB, with fsync: what cp and sync do.
void CopyFiles(const fs::path& from, const fs::path& to) {
  fs::create_directories(to);
  std::vector<char> buffer(1 << 20);
  for (const auto& entry : fs::directory_iterator(from)) {
    const int in = ::open(entry.path().c_str(), O_RDONLY);
    const int out = ::open((to / entry.path().filename()).c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    for (ssize_t count; (count = ::read(in, buffer.data(), buffer.size())) > 0;) {
      if (::write(out, buffer.data(), static_cast<size_t>(count)) != count) throw Error(ErrorCode::kJob, "write");
    }
    if (::fsync(out) != 0) throw Error(ErrorCode::kJob, "fsync");
    ::close(in);
    ::close(out);
  }
}

void ConvertOnce(const fs::path& source, const fs::path& target, const std::string& name) {
  constexpr double kGiB = 1 << 30;
  Log quiet([](std::string_view) {}, {.level = LogLevel::kError});
  ThreadPool pool(ChooseThreads(0));
  const Settings settings = Settings::Load({.words = {"use_qwix_quantization=true", "quantization=" + name}});
  const quant::RecipeChoice recipe = quant::ChooseRecipe(settings);
  const weights::StoredModel stored = weights::OpenStored(source);
  convert::ConvertRequest request{
      .source = stored, .target = target, .log = quiet, .pool = pool, .isa = kernels::ChooseIsa().isa};
  request.recipe = &recipe;
  convert::ConvertSummary summary;
  const double seconds = Seconds([&] { summary = convert::Convert(request); });
  fmt::print(
      "convert {:5} {:6.2f} GiB -> {:5.2f} GiB   write {:6.2f} s   with check {:6.2f} s   peak memory {:.3f} GiB\n",
      name, static_cast<double>(stored.stored_bytes) / kGiB, static_cast<double>(summary.bytes) / kGiB,
      summary.write_seconds, seconds, static_cast<double>(summary.peak_bytes) / kGiB);
}

int Run(const Args& args) {
  const std::string recipe = args.Text("recipe", "int8");
  const int64_t layers = args.Int("layers", 16, 1, 1000);
  const TempFolder folder;
  InChild([&] { WriteModel(folder / "source", layers); });
  ::sync();
  const auto report_copy = [&](const char* when) {
    const double seconds = Seconds([&] { CopyFiles(folder / "source", folder / "copy"); });
    fmt::print("copy    {:5} {:46.2f} s\n", when, seconds);
    fs::remove_all(folder / "copy");
  };
  report_copy("once");
  InChild([&] { ConvertOnce(folder / "source", folder / "out", recipe); });
  fs::remove_all(folder / "out");
  report_copy("again");
  InChild([&] { ConvertOnce(folder / "source", folder / "out", recipe); });
  return 0;
}

}  // namespace
}  // namespace octavo

int main(int argc, char** argv) {
  const octavo::VerbSpec spec{
      .name = "bench convert",
      .synopsis = "[recipe=int8] [layers=16]",
      .summary = "converting a random llama against copying its files",
      .details = "",
      .options = {{"recipe", "NAME", "what the weights become (int8)"},
                  {"layers", "N", "decoder layers of the model (16: 1.1 B parameters)"}},
  };
  return octavo::bench::RunDriver(spec, argc, argv, octavo::Run);
}
