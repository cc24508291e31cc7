// ./run bench soak [model=PATH] [seconds=60] [only=PARTS] [--quick]: `octavo serve` in a process of its own under four
// times its capacity, with clients that leave, stall and send rubbish; then the attacks that knocked other servers
// over, 1,000 slow clients, 10,000 that leave, and the server ended by SIGTERM and by kill -9 under load. Without a
// model a tiny one is trained first. Prints what was answered, how long /health took, memory, slots; exit 3 when a
// promise is broken.
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <functional>
#include <optional>
#include <thread>

#include "bench/common/child_process.h"
#include "bench/common/driver.h"
#include "bench/soak_clients.h"
#include "octavo/base/temp_folder.h"
#include "octavo/cli/verbs.h"

namespace octavo::bench {
namespace {

constexpr double kHealthLimit = 0.1;
constexpr int64_t kOverloadKiB = 16 << 10, kAttackKiB = 64 << 10, kBodiesKiB = 160 << 10;

class SoakedServer {
 public:
  SoakedServer(const std::string& model, int slots, const std::string& log)
      : words_({"/proc/self/exe", "serve", model, "port=0", "--json", fmt::format("max_concurrent_decodes={}", slots),
                fmt::format("max_queue={}", std::max(slots / 2, 1))}),
        log_(log) {
    Start();
  }
  // Seconds until it answered.
  double Start() {
    const double begin = Now();
    process_.emplace(words_, log_);
    const std::string line = process_->Line();
    const size_t at = line.find("\"port\":");
    if (at == std::string::npos) throw Error(ErrorCode::kJob, "the server did not start", "see " + log_);
    port_ = std::stoi(line.substr(at + 7));
    if (HttpClient(port_).Get("/health").status != 200) throw Error(ErrorCode::kJob, "the server is not healthy");
    return Now() - begin;
  }
  int port() const { return port_; }
  ChildProcess& process() { return *process_; }

  // The sum of a metric over its labels, or of one label value.
  double Metric(std::string_view name, std::string_view label = "") const {
    const std::string text = HttpClient(port_).Get("/metrics").body;
    double sum = 0;
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find('\n', at), text.size());
      const std::string_view line = std::string_view(text).substr(at, end - at);
      at = end + 1;
      if (!line.starts_with(name) || line.size() <= name.size()) continue;
      const char next = line[name.size()];
      if ((next == ' ' || next == '{') && line.find(label) != std::string_view::npos) {
        sum += std::stod(std::string(line.substr(line.rfind(' ') + 1)));
      }
    }
    return sum;
  }
  // Requests that still hold a slot or wait for one after all clients have gone.
  double Stuck() const {
    double stuck = 0;
    for (const double limit = Now() + 10; Now() < limit; std::this_thread::sleep_for(std::chrono::milliseconds(10))) {
      stuck = Metric("octavo_num_requests_running") + Metric("octavo_num_requests_waiting");
      if (stuck == 0) break;
    }
    return stuck;
  }

 private:
  std::vector<std::string> words_;
  std::string log_;
  std::optional<ChildProcess> process_;
  int port_ = 0;
};

// Asks /health ten times a second on connections of its own, and looks at the memory.
class Watch {
 public:
  explicit Watch(SoakedServer& server) : server_(server), thread_([this] { Run(); }) {}
  ~Watch() {
    stop_ = true;
    thread_.join();
  }
  struct Seen {
    double median = 0, worst = 0;
    size_t asked = 0, failed = 0;
    int64_t quarter_kib = 0, last_kib = 0;
  };
  Seen Take() {
    stop_ = true;
    thread_.join();
    thread_ = std::thread([] {});
    Seen seen;
    std::vector<double> sorted = health_;
    std::sort(sorted.begin(), sorted.end());
    if (sorted.empty()) return seen;
    seen.median = sorted[sorted.size() / 2];
    seen.worst = sorted.back();
    seen.asked = sorted.size();
    seen.failed = failed_;
    seen.quarter_kib = memory_[memory_.size() / 4];
    seen.last_kib = memory_.back();
    return seen;
  }

 private:
  void Run() {
    while (!stop_) {
      HttpClient probe(server_.port());
      const double asked = Now();
      failed_ += probe.Get("/health").status != 200;
      health_.push_back(Now() - asked);
      memory_.push_back(server_.process().ResidentKiB());
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }
  SoakedServer& server_;
  std::atomic<bool> stop_{false};
  std::vector<double> health_;
  std::vector<int64_t> memory_;
  size_t failed_ = 0;
  std::thread thread_;
};

struct Soak {
  SoakedServer& server;
  int slots;
  int faults = 0;

  void Require(bool good, std::string_view what) {
    if (good) return;
    ++faults;
    fmt::print("          BROKEN: {}\n", what);
  }
  void Health(const Watch::Seen& seen, int64_t limit_kib) {
    fmt::print("          /health median {:.1f} ms, worst {:.1f} ms of {}   memory {:.1f} -> {:.1f} MiB ({:+.1f})\n",
               1e3 * seen.median, 1e3 * seen.worst, seen.asked, static_cast<double>(seen.quarter_kib) / 1024,
               static_cast<double>(seen.last_kib) / 1024, static_cast<double>(seen.last_kib - seen.quarter_kib) / 1024);
    Require(seen.failed == 0, fmt::format("{} answers of /health were not 200", seen.failed));
    Require(seen.worst < kHealthLimit, "/health took 100 ms or longer");
    Require(seen.last_kib - seen.quarter_kib < limit_kib, "memory grows");
  }
  void Idle() {
    const double stuck = server.Stuck();
    Require(stuck == 0, fmt::format("{} requests still hold slots", stuck));
  }
};

// Runs `work` on `count` threads.
void Together(int count, const std::function<void(int)>& work) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back([&, i] { work(i); });
  for (std::thread& thread : threads) thread.join();
}

double P99(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() * 99 / 100];
}

std::string Table(const std::map<int, int64_t>& statuses) {
  std::string text;
  for (const auto& entry : statuses) {
    const std::string name = entry.first == 0 ? "cut" : entry.first == 1 ? "held" : std::to_string(entry.first);
    text += fmt::format("   {}: {}", name, entry.second);
  }
  return text;
}

void Overload(Soak& soak, double seconds) {
  Tally calm, all;
  const double calm_end = Now() + seconds / 4;
  Together(soak.slots, [&](int i) {
    HttpClient client(soak.server.port());
    for (int k = i; Now() < calm_end; ++k) AskHonestly(client, k % 2 == 0, calm);
  });
  fmt::print("capacity  {} clients on {} slots, {:.0f} s: {:.1f} requests/s, p99 {:.1f} ms\n", soak.slots, soak.slots,
             seconds / 4, static_cast<double>(calm.seconds.size()) / (seconds / 4), 1e3 * P99(calm.seconds));
  soak.Require(calm.statuses.size() == 1 && calm.statuses.contains(200), "not every request was answered with 200");

  Watch watch(soak.server);
  const double until = Now() + seconds * 3 / 4;
  std::thread slow([&] { SendSlowly(soak.server.port(), 200, until); });
  Together(4 * soak.slots, [&](int i) {
    std::mt19937 random(static_cast<unsigned>(i));
    HttpClient client(soak.server.port());
    while (Now() < until) {
      const unsigned kind = random() % 10;
      if (kind < 6) {
        AskHonestly(client, kind < 3, all);
      } else if (kind < 8) {
        AskAndLeave(client, random, all);
      } else {
        SendRubbish(client, random() % kRubbishKinds, all);
      }
    }
  });
  slow.join();
  const Watch::Seen seen = watch.Take();
  const double ratio = P99(all.seconds) / P99(calm.seconds);
  fmt::print("overload  {} clients, 200 slow ones, {:.0f} s:{}   left: {}   p99 of accepted {:.1f} ms, {:.2f} x\n",
             4 * soak.slots, seconds * 3 / 4, Table(all.statuses), all.left, 1e3 * P99(all.seconds), ratio);
  soak.Health(seen, kOverloadKiB);
  for (const auto& entry : all.statuses) {
    soak.Require(entry.first == 200 || (entry.first >= 400 && entry.first < 500),
                 fmt::format("{} answers with {}", entry.second, entry.first));
  }
  soak.Require(all.cut_short == 0, fmt::format("{} accepted requests without an end", all.cut_short));
  soak.Require(all.never == 0, "429 without Retry-After");
  soak.Require(ratio < 2, "p99 of accepted requests is over twice that at capacity");
  soak.Idle();
}

void Attacks(Soak& soak, int each) {
  Tally tally;
  Watch watch(soak.server);
  std::atomic<unsigned> next{0};
  const double begin = Now();
  Together(8, [&](int) {
    for (unsigned i; (i = next++) < kAttackKinds * static_cast<unsigned>(each);) {
      HttpClient client(soak.server.port());
      Attack(client, i % kAttackKinds, tally);
    }
  });
  const double passed = Now() - begin;
  const Watch::Seen seen = watch.Take();
  fmt::print("attacks   {} of each kind, {:.1f} s\n", each, passed);
  for (const auto& entry : tally.attacks) {
    fmt::print("          {:<28}{}\n", entry.first, Table(entry.second));
    for (const auto& status : entry.second) {
      soak.Require(status.first == 0 || (status.first >= 400 && status.first < 500), entry.first + " was not refused");
    }
  }
  soak.Health(seen, kAttackKiB);
}

void SlowThousand(Soak& soak, int count, double seconds) {
  Tally tally;
  Watch watch(soak.server);
  const double until = Now() + seconds;
  int64_t open = 0;
  std::thread slow([&] { open = SendSlowly(soak.server.port(), count, until); });
  std::this_thread::sleep_for(std::chrono::seconds(1));
  HttpClient client(soak.server.port());
  while (Now() < until) AskHonestly(client, true, tally);
  slow.join();
  const Watch::Seen seen = watch.Take();
  fmt::print("slow      {} clients send a byte a second, {:.0f} s, {} still there; one honest client:{}\n", count,
             seconds, open, Table(tally.statuses));
  soak.Health(seen, kAttackKiB);
  soak.Require(tally.statuses.size() == 1 && tally.statuses.contains(200) && tally.cut_short == 0,
               "the honest client was not always served");
}

void Fat(Soak& soak, int count, double seconds) {
  Tally fat, honest;
  Watch watch(soak.server);
  const double until = Now() + seconds;
  std::thread attack([&] { SendFatly(soak.server.port(), count, until, fat); });
  HttpClient client(soak.server.port());
  while (Now() < until) AskHonestly(client, true, honest);
  attack.join();
  const Watch::Seen seen = watch.Take();
  fmt::print("fat       {} clients send 16 MiB but for a byte and wait, {:.0f} s:{}; one honest client:{}\n", count,
             seconds, Table(fat.attacks["16 MiB but for a byte"]), Table(honest.statuses));
  soak.Health(seen, kBodiesKiB);
  soak.Require(honest.statuses.size() == 1 && honest.statuses.contains(200), "the honest client was not always served");
}

void Disconnects(Soak& soak, int count) {
  Tally tally;
  Watch watch(soak.server);
  std::atomic<int> next{0};
  const double begin = Now();
  Together(16, [&](int i) {
    std::mt19937 random(static_cast<unsigned>(1000 + i));
    HttpClient client(soak.server.port());
    while (next++ < count) AskAndLeave(client, random, tally);
  });
  const double passed = Now() - begin;
  const Watch::Seen seen = watch.Take();
  soak.Idle();
  fmt::print("leaving   {} clients left in {:.1f} s; cancelled {:.0f}, refused {:.0f}, engine faults {:.0f}\n",
             tally.left, passed, soak.server.Metric("octavo_request_success_total", "cancelled"),
             soak.server.Metric("octavo_request_rejected_total", "queue_full"),
             soak.server.Metric("octavo_request_success_total", "error"));
  soak.Health(seen, kAttackKiB);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const int64_t files = soak.server.process().OpenFiles();
  fmt::print("          {} open files afterwards\n", files);
  soak.Require(files < 64, "connections stay open");
}

// Ends the server under load and starts it again. With SIGTERM whatever was accepted must end.
void Ends(Soak& soak, int signal, int times) {
  Tally tally;
  int64_t lost = 0;
  double slowest_end = 0, slowest_start = 0;
  int wrong_codes = 0;
  for (int round = 0; round < times; ++round) {
    std::atomic<bool> stop{false};
    std::thread load([&] {
      Together(2 * soak.slots, [&](int i) {
        HttpClient client(soak.server.port());
        while (!stop) AskHonestly(client, i % 2 == 0, tally);
      });
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(50 + round * 37 % 200));
    const double begin = Now();
    soak.server.process().Signal(signal);
    wrong_codes += soak.server.process().Wait() != (signal == SIGTERM ? 0 : -SIGKILL);
    slowest_end = std::max(slowest_end, Now() - begin);
    stop = true;
    load.join();
    slowest_start = std::max(slowest_start, soak.server.Start());
  }
  for (const auto& entry : tally.statuses) {
    if (entry.first != 0 && entry.first != 200 && entry.first != 429 && entry.first != 503) lost += entry.second;
  }
  lost += signal == SIGTERM ? tally.cut_short : 0;
  fmt::print(
      "{:<9} {} times under load:{}   accepted without an end: {}   ends in at most {:.2f} s, serves again in {:.2f} "
      "s\n",
      signal == SIGTERM ? "SIGTERM" : "kill -9", times, Table(tally.statuses), tally.cut_short, slowest_end,
      slowest_start);
  soak.Require(lost == 0, "requests were lost");
  soak.Require(wrong_codes == 0, "wrong exit codes");
}

// A model of one layer with bytes as tokens, one step old.
std::string TrainTiny(const TempFolder& folder) {
  ChildProcess train({"/proc/self/exe", "train", "run_name=x", "base_output_directory=" + folder.path().string(),
                      "dataset_type=synthetic", "tokenizer_path=bytes", "vocab_size=258", "base_emb_dim=64",
                      "base_num_decoder_layers=2", "base_num_query_heads=4", "base_num_kv_heads=2", "head_dim=16",
                      "base_mlp_dim=192", "max_target_length=256", "per_device_batch_size=4", "dtype=float32",
                      "steps=1", "save_checkpoint_on_start=false", "--quiet"},
                     folder / "log");
  if (train.Wait() != 0) throw Error(ErrorCode::kJob, "the tiny model could not be trained");
  return folder / "x/checkpoints/latest";
}

int Run(const Args& args) {
  const bool quick = args.Switch("quick");
  const int slots = static_cast<int>(args.Int("slots", 8, 2, 256));
  const TempFolder folder;
  const std::string model = args.Has("model") ? args.Text("model", "") : TrainTiny(folder);
  SoakedServer server(model, slots, folder / "log");
  fmt::print("server    {} slots, {} may wait; {}\n", slots, std::max(slots / 2, 1),
             args.Has("model") ? model : "a tiny model of two layers");
  Soak soak{server, slots};
  const auto count = [&](const char* name, int usual, int short_form) {
    return static_cast<int>(args.Int(name, quick ? short_form : usual, 1, 1000000));
  };
  const int seconds = count("seconds", 60, 8), attacks = count("attacks", 1000, 20);
  const int leaving = count("leaving", 10000, 500), ends = count("ends", 100, 5);
  const std::pair<std::string_view, std::function<void()>> parts[] = {
      {"overload", [&] { Overload(soak, std::max(seconds, 4)); }},
      {"attacks", [&] { Attacks(soak, attacks); }},
      {"slow",
       [&] {
         SlowThousand(soak, 1000, quick ? 5 : 35);
         SlowThousand(soak, 2000, quick ? 5 : 35);
       }},
      {"fat", [&] { Fat(soak, quick ? 50 : 300, quick ? 4 : 20); }},
      {"leaving", [&] { Disconnects(soak, leaving); }},
      {"ends",
       [&] {
         Ends(soak, SIGTERM, ends);
         Ends(soak, SIGKILL, quick ? 2 : 10);
       }},
  };
  const std::string only = "," + args.Text("only", "") + ",";
  int run = 0;
  for (const auto& part : parts) {
    if (only != ",," && only.find(fmt::format(",{},", part.first)) == std::string::npos) continue;
    part.second();
    std::fflush(stdout);
    ++run;
  }
  if (run == 0) ThrowUsage("only={}: expected some of overload,attacks,slow,fat,leaving,ends", args.Text("only", ""));
  fmt::print("{}\n", soak.faults == 0 ? "ok" : fmt::format("FAILED: {} promises broken", soak.faults));
  return soak.faults == 0 ? 0 : 3;
}

}  // namespace
}  // namespace octavo::bench

int main(int argc, char** argv) {
  const octavo::VerbSpec spec{
      .name = "bench soak",
      .synopsis = "[model=PATH] [seconds=60] [only=PARTS] [--quick]",
      .summary = "a server under overload, attack and kill",
      .details = "",
      .options = {{"model", "PATH", "what octavo serve takes; a tiny one is trained without it"},
                  {"seconds", "N", "of overload, 60"},
                  {"slots", "N", "of the server, 8"},
                  {"attacks", "N", "of each kind, 1000"},
                  {"leaving", "N", "clients that leave, 10000"},
                  {"ends", "N", "SIGTERMs under load, 100"},
                  {"only", "PARTS", "some of overload,attacks,slow,fat,leaving,ends"},
                  {"quick", "", "a minute in all"}},
  };
  ::signal(SIGPIPE, SIG_IGN);
  // The server and the trainer are this program, started again.
  const std::vector<std::string_view> words(argv + 1, argv + argc);
  if (!words.empty() && (words[0] == "serve" || words[0] == "train")) return octavo::RunCommand(words);
  return octavo::bench::RunDriver(spec, argc, argv, octavo::bench::Run);
}
