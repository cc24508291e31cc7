// Converting a random llama of 1.1 B parameters in bf16 against copying its files: time, peak memory, sizes. Usage:
// bench_convert [recipe [layers]].
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>

#include "bench/common/driver.h"
#include "bench/common/random_model.h"
#include "octavo/base/error.h"
#include "octavo/base/temp_folder.h"
#include "octavo/convert/convert.h"
#include "octavo/kernels/isa.h"

namespace octavo::bench {
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
  models::ModelConfig config = RandomLlama(layers);
  config.model_name = "llama-1b";
  config.mlp_dim = 8192;
  config.max_target_length = 2048;
  return config;
}

// Sums of four bytes, about normal.
class NormalWeights {
 public:
  explicit NormalWeights(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15ULL + 1) {}
  float operator()() {
    state_ ^= state_ << 13, state_ ^= state_ >> 7, state_ ^= state_ << 17;
    const int sum = static_cast<int>(state_ & 255) + static_cast<int>(state_ >> 8 & 255) +
                    static_cast<int>(state_ >> 16 & 255) + static_cast<int>(state_ >> 24 & 255) - 510;
    return static_cast<float>(sum) * 1e-4f;
  }

 private:
  uint64_t state_;
};

void WriteSource(const fs::path& folder, int64_t layers) {
  WriteModel(folder, Llama(layers),
             [](const Shape& shape, uint64_t seed) { return MakeBF16(shape, NormalWeights(seed)); });
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
  InChild([&] { WriteSource(folder / "source", layers); });
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
}  // namespace octavo::bench

int main(int argc, char** argv) {
  const octavo::VerbSpec spec{
      .name = "bench convert",
      .synopsis = "[recipe=int8] [layers=16]",
      .summary = "converting a random llama against copying its files",
      .details = "",
      .options = {{"recipe", "NAME", "what the weights become (int8)"},
                  {"layers", "N", "decoder layers of the model (16: 1.1 B parameters)"}},
  };
  return octavo::bench::RunDriver(spec, argc, argv, octavo::bench::Run);
}
