// ./run bench serve MODEL [threads=2] [peer=PORT]: requests per second of 8 clients (64 prompt + 32 new tokens each),
// and 32 streaming clients against the engine's own rate for the same 32 requests. peer= is a port on this machine
// where another server with OpenAI's API has the same model; its requests per second are then printed beside ours.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "bench/common/http_client.h"
#include "octavo/engine/collector.h"
#include "octavo/engine/serving_model.h"
#include "octavo/server/serve.h"

namespace octavo::bench {
namespace {

// Token ids that no other request shares, so that no prefix cache helps anybody.
std::vector<int32_t> Prompt(int seed, int64_t length, int64_t vocabulary) {
  std::mt19937 random(static_cast<unsigned>(seed) * 7919u + 1u);
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < length; ++i) {
    ids.push_back(static_cast<int32_t>(3 + random() % static_cast<unsigned>(vocabulary - 3)));
  }
  return ids;
}

std::string Body(const std::vector<int32_t>& prompt, int tokens, bool stream) {
  return fmt::format(R"({{"prompt":[{}],"max_tokens":{},"temperature":0,"ignore_eos":true,"stream":{}}})",
                     fmt::join(prompt, ","), tokens, stream);
}

// Requests per second of `clients` that send `each` requests one after the other. 0 when any fails.
double RequestRate(int port, int clients, int each, int64_t vocabulary, int seed) {
  std::vector<std::thread> threads;
  std::atomic<int> failed{0};
  const double begin = Now();
  for (int c = 0; c < clients; ++c) {
    threads.emplace_back([&, c] {
      HttpClient client(port);
      for (int i = 0; i < each; ++i) {
        const std::string body = Body(Prompt(seed + c * 1000 + i, 64, vocabulary), 32, false);
        if (client.Post("/v1/completions", body).status != 200) ++failed;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return failed > 0 ? 0 : clients * each / (Now() - begin);
}

struct StreamResult {
  double tokens_per_second = 0, median_gap = 0, p99_gap = 0;
};

StreamResult StreamRate(int port, int clients, int tokens, int64_t vocabulary) {
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::vector<double> gaps;
  const double begin = Now();
  for (int c = 0; c < clients; ++c) {
    threads.emplace_back([&, c] {
      HttpClient client(port);
      std::vector<double> mine;
      double last = 0;
      client.Post("/v1/completions", Body(Prompt(c + 500000, 16, vocabulary), tokens, true), [&](std::string_view) {
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
double EngineRate(engine::Service& service, int clients, int tokens, int64_t vocabulary) {
  std::vector<engine::Collector> collectors(static_cast<size_t>(clients));
  const double begin = Now();
  for (int c = 0; c < clients; ++c) {
    engine::Request request;
    request.prompt = Prompt(c + 900000, 16, vocabulary);
    request.max_new_tokens = tokens;
    request.ignore_eos = true;
    request.sampling.temperature = 0;
    service.Submit(request, collectors[static_cast<size_t>(c)].listener());
  }
  for (const engine::Collector& collector : collectors) collector.Wait();
  return clients * tokens / (Now() - begin);
}

int Run(const std::string& path, int threads, int peer) {
  engine::ServingOptions options;
  options.path = path;
  options.slots = 32;
  options.context_length = 128;
  options.threads = threads;
  options.prefix_cache = false;
  const auto model = engine::ServingModel::Open(options);
  const auto scheduler = model->Start();
  server::ServeOptions serve;
  serve.http.port = 0;
  server::Server server(*scheduler, serve);
  std::thread network([&] { server.Run(false, [](const std::string&) {}); });
  const int64_t vocabulary = model->info().vocabulary_size;
  fmt::print("model     {}   {} threads\n", model->Describe(), threads);
  RequestRate(server.port(), 8, 1, vocabulary, 77);  // warm
  const double ours = RequestRate(server.port(), 8, 4, vocabulary, 1000000);
  fmt::print("clients   8 x (64 + 32): {:.2f} requests/s\n", ours);
  if (peer > 0) {
    RequestRate(peer, 8, 1, vocabulary, 77);
    const double theirs = RequestRate(peer, 8, 4, vocabulary, 1000000);
    fmt::print("peer      {:.2f} requests/s   ratio {:.2f}\n", theirs, theirs > 0 ? ours / theirs : 0);
  }
  // In turns, so that neither has the quieter machine.
  double engine = 0;
  StreamResult streams;
  for (int i = 0; i < 3; ++i) {
    engine = std::max(engine, EngineRate(*scheduler, 32, 64, vocabulary));
    const StreamResult one = StreamRate(server.port(), 32, 64, vocabulary);
    if (one.tokens_per_second > streams.tokens_per_second) streams = one;
  }
  fmt::print("streams   32 x 64: {:.1f} tok/s   engine alone {:.1f} tok/s   ratio {:.3f}\n", streams.tokens_per_second,
             engine, streams.tokens_per_second / engine);
  fmt::print("gaps      median {:.2f} ms   p99 {:.2f} ms   {:.2f} x\n", 1e3 * streams.median_gap, 1e3 * streams.p99_gap,
             streams.p99_gap / streams.median_gap);
  server.Drain();
  network.join();
  return 0;
}

}  // namespace
}  // namespace octavo::bench

int main(int argc, char** argv) {
  std::string path;
  int threads = 2, peer = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.starts_with("threads=")) {
      threads = std::stoi(word.substr(8));
    } else if (word.starts_with("peer=")) {
      peer = std::stoi(word.substr(5));
    } else {
      path = word;
    }
  }
  if (path.empty()) {
    fmt::print(stderr, "usage: ./run bench serve MODEL [threads=2] [peer=PORT]\n");
    return 2;
  }
  try {
    return octavo::bench::Run(path, threads, peer);
  } catch (const octavo::Error& error) {
    fmt::print(stderr, "error: {}\n  {}\n", error.message(), error.hint());
    return error.exit_code();
  }
}
