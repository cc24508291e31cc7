// octavo doctor: what a bug report needs, each line ok, warn or fail.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "octavo/base/error.h"
#include "octavo/base/thread_pool.h"
#include "octavo/cli/doctor_checks.h"
#include "octavo/cli/verbs.h"
#include "octavo/kernels/isa.h"
#include "octavo/kernels/limits.h"
#include "octavo/kernels/selftest.h"
#include "octavo/version.h"

namespace octavo {
namespace {

const char* NameOf(Health health) { return health == Health::kOk ? "ok" : health == Health::kWarn ? "warn" : "fail"; }

// The value of the first line `key : value` of a /proc file; empty when there is none.
std::string ProcValue(const char* path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const size_t start = line.find_first_not_of(" \t", colon + 1);
    return start == std::string::npos ? "" : line.substr(start);
  }
  return "";
}

Finding Version() {
#if defined(__clang__)
  const std::string compiler = fmt::format("clang {}.{}", __clang_major__, __clang_minor__);
#else
  const std::string compiler = fmt::format("g++ {}.{}", __GNUC__, __GNUC_MINOR__);
#endif
  utsname system{};
  uname(&system);
  return {Health::kOk, "version",
          fmt::format("octavo {} ({}), {}, {} {} {}", OCTAVO_VERSION, OCTAVO_COMMIT, compiler, system.sysname,
                      system.release, system.machine)};
}

Finding Cpu(const kernels::IsaChoice& choice) {
  std::string model = ProcValue("/proc/cpuinfo", "model name");
  if (model.empty()) model = "unknown cpu";
  const bool slow = choice.isa == kernels::Isa::kReference;
  return {slow ? Health::kWarn : Health::kOk, "cpu",
          fmt::format("{}; kernels {}: {}; not {}{}", model, kernels::NameOf(choice.isa), choice.reason, choice.next,
                      slow ? "; expect about 20 times slower work" : "")};
}

Finding Threads(int threads) {
  return {Health::kOk, "threads", fmt::format("{} (of {} online cores)", threads, sysconf(_SC_NPROCESSORS_ONLN))};
}

Finding Memory() {
  const double total = std::atof(ProcValue("/proc/meminfo", "MemTotal").c_str()) / (1 << 20);
  const double available = std::atof(ProcValue("/proc/meminfo", "MemAvailable").c_str()) / (1 << 20);
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string huge;
  std::getline(file, huge);
  const bool no_huge = huge.find("[never]") != std::string::npos;
  return {available < 2 || no_huge ? Health::kWarn : Health::kOk, "memory",
          fmt::format("{:.1f} GiB, {:.1f} GiB available; huge pages: {}", total, available,
                      huge.empty() ? "unknown" : huge)};
}

Finding Limits(ThreadPool& pool, kernels::Isa isa) {
  const kernels::MachineLimits limits = kernels::MeasureLimits(pool, isa);
  return {Health::kOk, "limits",
          fmt::format("fp32 FMA {:.1f} GMAC/s, int8 {:.1f} GMAC/s, reads {:.1f} GB/s, {} threads", limits.fma_gmacs,
                      limits.madd_gmacs, limits.read_gb_per_s, pool.size())};
}

Finding Mpi() {
  const char* path = std::getenv("PATH");
  std::string directories = path == nullptr ? "" : path;
  directories += ':';
  for (size_t start = 0, end; (end = directories.find(':', start)) != std::string::npos; start = end + 1) {
    const std::string candidate = directories.substr(start, end - start) + "/mpirun";
    if (access(candidate.c_str(), X_OK) == 0) return {Health::kOk, "mpi", fmt::format("found {}", candidate)};
  }
  return {Health::kOk, "mpi", "no mpirun on PATH: one rank only"};
}

Finding OpenFiles() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const bool low = limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < 1024;
  return {low ? Health::kWarn : Health::kOk, "open files",
          limit.rlim_cur == RLIM_INFINITY
              ? "no limit"
              : fmt::format("limit {}{}", limit.rlim_cur, low ? "; a server wants 1024: ulimit -n 4096" : "")};
}

// Median time of a 4 KiB write and fsync in the current folder, where checkpoints are likely to go.
Finding Fsync() {
  char name[] = ".octavo-doctor-XXXXXX";
  const int file = mkstemp(name);
  if (file < 0) return {Health::kWarn, "disk", "cannot write to the current folder"};
  unlink(name);
  std::vector<double> times;
  const std::vector<char> block(4096, 'x');
  bool failed = false;
  for (int i = 0; i < 9 && !failed; ++i) {
    const auto start = std::chrono::steady_clock::now();
    failed = write(file, block.data(), block.size()) != static_cast<ssize_t>(block.size()) || fsync(file) != 0;
    times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  close(file);
  if (failed) return {Health::kFail, "disk", "a 4 KiB write and fsync failed: is the disk full?"};
  std::nth_element(times.begin(), times.begin() + 4, times.end());
  struct statvfs space {};
  statvfs(".", &space);
  const double free_gib = static_cast<double>(space.f_bavail) * static_cast<double>(space.f_frsize) / (1 << 30);
  return {times[4] > 50 || free_gib < 1 ? Health::kWarn : Health::kOk, "disk",
          fmt::format("fsync {:.2f} ms, {:.1f} GiB free in the current folder", times[4], free_gib)};
}

void Print(const Finding& finding, bool json) {
  if (json) {
    nlohmann::json line = {
        {"event", "finding"}, {"health", NameOf(finding.health)}, {"subject", finding.subject}, {"text", finding.text}};
    fmt::print("{}\n", line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    fmt::print("{:<5} {:<11} {}\n", NameOf(finding.health), finding.subject, finding.text);
  }
  std::fflush(stdout);
}

int RunDoctor(const Args& args) {
  const bool json = args.Switch("json");
  Health worst = Health::kOk;
  const auto report = [&](const Finding& finding) {
    worst = std::max(worst, finding.health);
    Print(finding, json);
  };
  const kernels::IsaChoice choice = kernels::ChooseIsa();
  ThreadPool pool(args.Threads());
  report(Version());
  report(Cpu(choice));
  report(Threads(pool.size()));
  report(Memory());
  report(Limits(pool, choice.isa));
  report(Mpi());
  report(OpenFiles());
  report(Fsync());
  if (!args.positionals().empty()) {
    for (const Finding& finding : ModelFindings(args.positionals()[0], args)) report(finding);
  }
  if (args.Has("url")) report(ServerFinding(args.Text("url", "")));
  if (args.Switch("self_test")) {
    for (const kernels::SelfTestResult& result : kernels::RunSelfTests(pool, choice.isa)) {
      report({result.passed ? Health::kOk : Health::kFail, "self-test",
              fmt::format("{} ({}): {}", result.name, kernels::NameOf(result.isa), result.detail)});
    }
  }
  return worst == Health::kFail ? 1 : 0;
}

}  // namespace

VerbSpec DoctorVerb() {
  return {.name = "doctor",
          .synopsis = "[MODEL] [url=URL] [--self-test] [--json]",
          .summary = "what a bug report needs: version, cpu, kernels, memory, measured limits, disk",
          .details =
              "Prints one line per subject, each ok, warn or fail; exit 1 when one fails. Takes two or three seconds.\n"
              "MODEL is opened as it would be served: every tensor and digest, tokenizer, chat template.",
          .most_positionals = 1,
          .options = {{"self_test", "", "also run every chosen kernel against its reference"},
                      {"url", "URL", "a running server, http://HOST:PORT: whether it answers"},
                      {"tokenizer_path", "PATH", "for a MODEL that has no tokenizer of its own"}},
          .run = RunDoctor};
}

}  // namespace octavo
