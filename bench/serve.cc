// ./run bench serve [llama=PATH] [model=PATH] [keep=FOLDER]: requests per second of 8 clients (64 prompt + 32 new
// tokens each), beside llama-server in the same run when its binary is given, and 32 streaming clients against the
// engine's own rate for the same 32 requests, with the time between tokens. Without a model a random llama of 0.85 B
// parameters in int8 is made; llama-server gets the same codes as Q8_0. keep= makes it once.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "bench/common/child_process.h"
#include "bench/common/driver.h"
#include "bench/common/http_client.h"
#include "bench/serve_model.h"
#include "octavo/base/temp_folder.h"
#include "octavo/cli/verbs.h"
#include "octavo/engine/collector.h"
#include "octavo/engine/serving_model.h"
#include "octavo/server/serve.h"

namespace octavo::bench {
namespace {

constexpr int kContext = 128;

// Token ids that no other request shares, so that no prefix cache helps anybody.
std::vector<int32_t> Prompt(int seed, int64_t length, int64_t vocabulary) {
  std::mt19937 random(static_cast<unsigned>(seed) * 7919u + 1u);
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < length; ++i) {
    ids.push_back(static_cast<int32_t>(3 + random() % static_cast<unsigned>(vocabulary - 4)));
  }
  return ids;
}

std::string Body(const std::vector<int32_t>& prompt, int tokens, bool stream) {
  return fmt::format(R"({{"prompt":[{}],"max_tokens":{},"temperature":0,"ignore_eos":true,"stream":{}}})",
                     fmt::join(prompt, ","), tokens, stream);
}

// Requests per second of `clients` that send `each` requests one after the other.
double RequestRate(int port, int clients, int each, int64_t vocabulary, int seed) {
  std::vector<std::thread> threads;
  std::atomic<int> failed{0};
  const double begin = Now();
  for (int c = 0; c < clients; ++c) {
    threads.emplace_back([&, c] {
      HttpClient client(port);
      for (int i = 0; i < each; ++i) {
        const std::string body = Body(Prompt(seed + c * 1000 + i, 64, vocabulary), 32, false);
        const HttpAnswer answer = client.Post("/v1/completions", body);
        if (answer.status != 200 || answer.body.find("\"completion_tokens\":32") == std::string::npos) ++failed;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (failed > 0) throw Error(ErrorCode::kJob, fmt::format("{} requests to port {} failed", failed.load(), port));
  return clients * each / (Now() - begin);
}

struct StreamResult {
  double tokens_per_second = 0, median_gap = 0, p99_gap = 0;
};

StreamResult StreamRate(int port, int clients, int tokens, int64_t vocabulary, int seed) {
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::vector<double> gaps;
  const double begin = Now();
  for (int c = 0; c < clients; ++c) {
    threads.emplace_back([&, c] {
      HttpClient client(port);
      std::vector<double> mine;
      double last = 0;
      client.Post("/v1/completions", Body(Prompt(seed + c, 16, vocabulary), tokens, true), [&](std::string_view) {
        const double now = Now();
        if (last > 0) mine.push_back(now - last);
        last = now;
        return true;
      });
      const std::lock_guard lock(mutex);
      gaps.insert(gaps.end(), mine.begin(), mine.end());
    });
  }
  for (std::thread& thread : threads) thread.join();
  const double seconds = Now() - begin;
  std::sort(gaps.begin(), gaps.end());
  if (gaps.empty()) return {};
  return {clients * tokens / seconds, gaps[gaps.size() / 2], gaps[gaps.size() * 99 / 100]};
}

// The same requests given to the engine directly.
double EngineRate(engine::Service& service, int clients, int tokens, int64_t vocabulary, int seed) {
  std::vector<engine::Collector> collectors(static_cast<size_t>(clients));
  const double begin = Now();
  for (int c = 0; c < clients; ++c) {
    engine::Request request;
    request.prompt = Prompt(seed + c, 16, vocabulary);
    request.max_new_tokens = tokens;
    request.ignore_eos = true;
    request.sampling.temperature = 0;
    service.Submit(request, collectors[static_cast<size_t>(c)].listener());
  }
  for (const engine::Collector& collector : collectors) collector.Wait();
  return clients * tokens / (Now() - begin);
}

// llama-server with the same codes, 8 slots, and as many threads.
class LlamaServer {
 public:
  LlamaServer(const std::string& binary, const std::string& gguf, int threads, const std::string& log)
      : port_(FreePort()),
        process_({binary, "-m", gguf, "--host", "127.0.0.1", "--port", std::to_string(port_), "-np", "8", "-c",
                  std::to_string(8 * kContext), "-t", std::to_string(threads), "-tb", std::to_string(threads), "-cb"},
                 log) {
    while (HttpClient(port_).Get("/health").status != 200) {
      if (!process_.Running()) throw Error(ErrorCode::kJob, "llama-server ended", "see " + log);
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
  }
  int port() const { return port_; }

 private:
  static int FreePort() {
    const int probe = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    ::bind(probe, reinterpret_cast<sockaddr*>(&address), size);
    ::getsockname(probe, reinterpret_cast<sockaddr*>(&address), &size);
    ::close(probe);
    return ntohs(address.sin_port);
  }
  int port_;
  ChildProcess process_;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void MeasureRequests(const server::Server& server, const LlamaServer* llama, int64_t vocabulary, int rounds) {
  std::vector<double> ours, theirs;
  for (int round = -1; round < rounds; ++round) {  // in turns; the first round warms up
    const int seed = 1000000 + round * 20000, each = round < 0 ? 1 : 3;
    const double one = RequestRate(server.port(), 8, each, vocabulary, seed);
    const double other = llama == nullptr ? 0 : RequestRate(llama->port(), 8, each, vocabulary, seed);
    if (round < 0) continue;
    ours.push_back(one);
    theirs.push_back(other);
  }
  fmt::print("clients   8 x (64 + 32): {:.3f} requests/s", Median(ours));
  if (llama != nullptr) {
    fmt::print("   llama-server {:.3f} requests/s   ratio {:.2f} (bar 1.7)", Median(theirs),
               Median(ours) / Median(theirs));
  }
  fmt::print("\n");
}

void MeasureStreams(const server::Server& server, engine::Service& service, int64_t vocabulary, int rounds) {
  std::vector<double> engine, streams, medians, p99s;
  for (int round = 0; round < rounds; ++round) {  // in turns, so that neither has the quieter machine
    engine.push_back(EngineRate(service, 32, 64, vocabulary, 900000 + 100 * round));
    const StreamResult one = StreamRate(server.port(), 32, 64, vocabulary, 500000 + 100 * round);
    streams.push_back(one.tokens_per_second);
    medians.push_back(one.median_gap);
    p99s.push_back(one.p99_gap);
  }
  fmt::print("streams   32 x 64: {:.1f} tok/s   engine alone {:.1f} tok/s   ratio {:.3f} (bar 0.9)\n", Median(streams),
             Median(engine), Median(streams) / Median(engine));
  fmt::print("gaps      median {:.2f} ms   p99 {:.2f} ms   {:.2f} x (bar 3)\n", 1e3 * Median(medians),
             1e3 * Median(p99s), Median(p99s) / Median(medians));
}

int Run(const Args& args) {
  const TempFolder scratch;
  const std::string binary = args.Text("llama", "");
  const int threads = args.Threads(), rounds = static_cast<int>(args.Int("rounds", 3, 1, 100));
  engine::ServingOptions options;
  ServedFiles files;
  options.path = args.Text("model", "");
  if (options.path.empty()) {
    files = MakeServedModel(args.Text("keep", scratch.path().string()), args.Int("layers", 16, 1, 64), !binary.empty());
    options.path = files.checkpoint;
  }
  options.slots = 32;
  options.context_length = kContext;
  options.threads = threads;
  options.prefix_cache = false;
  const auto model = engine::ServingModel::Open(options);
  const auto scheduler = model->Start();
  server::Server server({.http = {.port = 0}});
  server.Open(*scheduler, {});
  const int64_t vocabulary = model->info().vocabulary_size;
  fmt::print("model     {}   {} threads\n", model->Describe(), threads);
  std::fflush(stdout);
  {
    std::optional<LlamaServer> llama;
    if (binary.empty() || files.gguf.empty()) {
      fmt::print("peer      none: give llama=PATH of llama-server, and no model\n");
    } else {
      llama.emplace(binary, files.gguf, threads, scratch / "llama.log");
    }
    MeasureRequests(server, llama ? &*llama : nullptr, vocabulary, rounds);
    std::fflush(stdout);
  }
  MeasureStreams(server, *scheduler, vocabulary, rounds);
  server.Drain();
  server.Run();
  return 0;
}

}  // namespace
}  // namespace octavo::bench

int main(int argc, char** argv) {
  const octavo::VerbSpec spec{
      .name = "bench serve",
      .synopsis = "[llama=PATH] [model=PATH] [keep=FOLDER]",
      .summary = "requests per second and streams of a served model",
      .details = "",
      .options = {{"model", "PATH", "what octavo serve takes; without it a random llama in int8"},
                  {"llama", "PATH", "llama-server, which then runs beside"},
                  {"keep", "FOLDER", "where the random model stays for the next time"},
                  {"layers", "N", "of the random model, 16"},
                  {"rounds", "N", "3; the medians are printed"}},
  };
  // The converter is this program, started again.
  const std::vector<std::string_view> words(argv + 1, argv + argc);
  if (!words.empty() && words[0] == "convert") return octavo::RunCommand(words);
  return octavo::bench::RunDriver(spec, argc, argv, octavo::bench::Run);
}
