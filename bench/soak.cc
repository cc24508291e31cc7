// ./run bench soak [seconds=60] [slots=8]: a server under four times its capacity, with clients that leave, stall, send
// rubbish and huge headers. Prints what was answered, how long /health took, how much memory grew, and whether every
// slot came back. The engine is the one without a model: it is the server that is tried here.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "bench/common/http_client.h"
#include "octavo/engine/mock_service.h"
#include "octavo/server/serve.h"

namespace octavo::bench {
namespace {

int64_t ResidentKiB() {
  std::ifstream file("/proc/self/statm");
  int64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE) / 1024;
}

struct Counts {
  std::mutex mutex;
  std::map<int, int64_t> statuses;
  int64_t left = 0, incomplete = 0;
  std::vector<double> health;
  void Add(int status) {
    const std::lock_guard lock(mutex);
    ++statuses[status];
  }
};

constexpr std::string_view kShort = R"({"prompt":"abcdef","max_tokens":24})";
constexpr std::string_view kStream = R"({"prompt":"abcdef","max_tokens":24,"stream":true})";

void Attack(HttpClient& client, unsigned kind, Counts& counts) {
  const std::string_view line = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n";
  switch (kind) {
    case 0:
      client.Send(fmt::format("{}X: {}\r\n\r\n", line, std::string(20000, 'x')));
      break;
    case 1:
      client.Send(fmt::format("{}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", line));
      break;
    case 2:
      client.Send(fmt::format("{}Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n-2\r\n", line));
      break;
    case 3:
      client.Send(fmt::format("{}Content-Type: application/json\r\nContent-Length: 99999999\r\n\r\n", line));
      break;
    case 4: {
      std::string many(line);
      for (int i = 0; i < 150; ++i) many += fmt::format("A{}: 1\r\n", i);
      client.Send(many + "\r\n");
      break;
    }
    case 5:
      client.Send(HttpClient::PostText("/v1/completions", std::string(100000, '[')));
      break;
    default:
      client.Send(HttpClient::PostText("/v1/completions", R"({"prompt":"a","n":1000000,"max_tokens":-1})"));
  }
  counts.Add(client.Read().status);
  client.Close();
}

void Client(int port, unsigned seed, double until, Counts& counts) {
  std::mt19937 random(seed);
  HttpClient client(port);
  while (Now() < until) {
    const unsigned kind = random() % 10;
    if (kind < 4) {
      counts.Add(client.Post("/v1/completions", kShort).status);
    } else if (kind < 6) {
      const HttpAnswer answer = client.Post("/v1/completions", kStream);
      counts.Add(answer.status);
      if (answer.status == 200 && !answer.body.ends_with("data: [DONE]\n\n")) {
        const std::lock_guard lock(counts.mutex);
        ++counts.incomplete;
      }
    } else if (kind == 6) {  // leaves in the middle of its stream
      int pieces = static_cast<int>(random() % 8);
      client.Post("/v1/completions", kStream, [&](std::string_view) { return pieces-- > 0; });
      client.Close();
      const std::lock_guard lock(counts.mutex);
      ++counts.left;
    } else if (kind == 7) {  // leaves before its request is whole
      client.Send(HttpClient::PostText("/v1/completions", kShort).substr(0, 10 + random() % 100));
      client.Close();
    } else {
      client.Close();
      Attack(client, random() % 7, counts);
    }
  }
}

// Connections that send a byte a second and never finish.
void Slow(int port, int count, double until) {
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < count; ++i) {
    clients.push_back(std::make_unique<HttpClient>(port));
    clients.back()->Connect();
  }
  while (Now() < until) {
    for (const auto& client : clients) client->Send("G");
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
}

int Run(double seconds, int slots) {
  const auto tokenizer = text::MakeByteTokenizer();
  engine::MockOptions mock;
  mock.slots = slots;
  mock.max_queue = slots;
  mock.step_seconds = 0.001;
  mock.retry_seconds = 1;
  engine::MockService service(*tokenizer, mock);
  server::ServeOptions options;
  options.http.port = 0;
  server::Server server(service, options);
  std::thread network([&] { server.Run(false, [](const std::string&) {}); });

  Counts counts;
  const double begin = Now(), until = begin + seconds;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4 * slots; ++i) {
    threads.emplace_back([&, i] { Client(server.port(), static_cast<unsigned>(i), until, counts); });
  }
  threads.emplace_back([&] { Slow(server.port(), 200, until); });
  int64_t early = 0, late = 0;
  while (Now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    HttpClient probe(server.port());
    const double asked = Now();
    const int status = probe.Get("/health").status;
    const std::lock_guard lock(counts.mutex);
    counts.health.push_back(status == 200 ? Now() - asked : 1e9);
    if (Now() - begin > seconds * 0.25 && early == 0) early = ResidentKiB();
    late = ResidentKiB();
  }
  for (std::thread& thread : threads) thread.join();
  const double waited = Now() + 10;
  while (service.Stats().running + service.Stats().waiting > 0 && Now() < waited) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  const engine::ServiceStats stats = service.Stats();
  server.Drain();
  network.join();

  std::sort(counts.health.begin(), counts.health.end());
  int64_t all = 0, faults = counts.incomplete;
  std::string table;
  for (const auto& entry : counts.statuses) {
    all += entry.second;
    if (entry.first == 0 || entry.first >= 500) faults += entry.second;
    table += fmt::format("   {}: {}", entry.first, entry.second);
  }
  const double worst = counts.health.empty() ? 1e9 : counts.health.back();
  const int64_t stuck = stats.running + stats.waiting;
  fmt::print("soak      {:.0f} s   {} clients on {} slots, 200 slow ones   {} answers\n", seconds, 4 * slots, slots,
             all);
  fmt::print("statuses {}   left in mid-stream: {}   streams cut short: {}\n", table, counts.left, counts.incomplete);
  fmt::print("health    median {:.1f} ms   worst {:.1f} ms of {}\n", 1e3 * counts.health[counts.health.size() / 2],
             1e3 * worst, counts.health.size());
  fmt::print("memory    {} KiB after a quarter, {} KiB at the end ({:+} KiB)\n", early, late, late - early);
  fmt::print("slots     {} stuck   finished {}   cancelled {}\n", stuck, stats.finished, stats.cancelled);
  const bool good = faults == 0 && stuck == 0 && worst < 0.1;
  fmt::print("{}\n", good ? "ok" : "FAILED");
  return good ? 0 : 3;
}

}  // namespace
}  // namespace octavo::bench

int main(int argc, char** argv) {
  double seconds = 60;
  int slots = 8;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word.starts_with("seconds=")) seconds = std::stod(argv[i] + 8);
    if (word.starts_with("slots=")) slots = std::stoi(argv[i] + 6);
  }
  return octavo::bench::Run(seconds, slots);
}
