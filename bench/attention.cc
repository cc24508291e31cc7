// `./run bench attention`: attention forward, backward and decode on the shapes of bench/shapes/attention.txt against
// the limits of the machine, measured in the same run, and against attention composed from OpenBLAS products.
#include "bench/attention.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "bench/common/driver.h"
#include "bench/common/isa_option.h"
#include "bench/common/peers.h"
#include "bench/common/shapes.h"
#include "octavo/base/error.h"
#include "octavo/cli/args.h"
#include "octavo/kernels/limits.h"

namespace octavo::bench {
namespace {

VerbSpec Spec() {
  VerbSpec spec;
  spec.name = "bench attention";
  spec.synopsis = "[--shapes FILE] [--match TEXT] [--rounds N] [--json]";
  spec.summary = "time attention forward, backward and decode";
  spec.details = "Multiply-adds are counted for visible pairs of a query and a key only.";
  spec.options = {{"shapes", "FILE", "text file of shapes (default: bench/shapes/attention.txt)"},
                  {"match", "TEXT", "only shapes whose name or pass contains TEXT"},
                  {"rounds", "N", "samples per contender (default 7)"},
                  {"isa", "NAME", kIsaHelp}};
  return spec;
}

void PrintRow(bool json, const AttentionBenchShape& shape, const Contender& c, const Timing& t,
              const kernels::MachineLimits& limits) {
  const double gmacs = c.macs / t.median * 1e-9, gb = c.bytes / t.median * 1e-9;
  const double share = gmacs / limits.fma_gmacs, reads = gb / limits.read_gb_per_s;
  if (json) {
    const nlohmann::ordered_json row = {{"type", "row"},
                                        {"shape", shape.name},
                                        {"pass", shape.pass},
                                        {"length", shape.length},
                                        {"heads", shape.heads},
                                        {"kv_heads", shape.kv_heads},
                                        {"qk", shape.qk},
                                        {"v", shape.v},
                                        {"mask", shape.mask},
                                        {"stored", shape.stored},
                                        {"who", c.name},
                                        {"median_ms", t.median * 1e3},
                                        {"least_ms", t.least * 1e3},
                                        {"spread", t.spread},
                                        {"gmacs", gmacs},
                                        {"share_of_fma_limit", share},
                                        {"gb_per_s", gb},
                                        {"share_of_reads", reads},
                                        {"right", t.verdict.right},
                                        {"check", t.verdict.text}};
    fmt::print("{}\n", row.dump());
  } else {
    const std::string memory = c.bytes > 0 ? fmt::format("{:>6.1f} {:>4.0f}%", gb, reads * 100) : std::string(12, ' ');
    fmt::print("{:<16} {:<9} {:<18} {:>10.3f} {:>10.3f} {:>5.1f}% {:>7.1f} {:>4.0f}% {}  {}\n", shape.name, shape.pass,
               c.name, t.median * 1e3, t.least * 1e3, t.spread * 100, gmacs, share * 100, memory, t.verdict.text);
  }
  std::fflush(stdout);
}

int Run(const Args& args) {
  HarnessOptions options;
  options.rounds = static_cast<int>(args.Int("rounds", 7, 1, 1000));
  ThreadPool pool(args.Threads());
  kernels::Workspace workspace;
  const kernels::IsaChoice isa = kernels::ChooseIsa();
  AttentionBench bench{pool, isa.isa, workspace};
  SetPeerThreads(pool.size());
  const auto limits = kernels::MeasureLimits(pool, isa.isa);
  const bool json = args.Switch("json");
  if (json) {
    const nlohmann::ordered_json row = {
        {"type", "limits"}, {"fma_gmacs", limits.fma_gmacs}, {"read_gb_per_s", limits.read_gb_per_s}};
    fmt::print("{}\n", row.dump());
  } else {
    fmt::print("octavo {} ({}), {} threads; {}\n", kernels::NameOf(isa.isa), isa.reason, pool.size(), PeerVersions());
    fmt::print("limits of this run: FMA {:.1f} GMAC/s, reads {:.1f} GB/s\n\n", limits.fma_gmacs, limits.read_gb_per_s);
    fmt::print("{:<16} {:<9} {:<18} {:>10} {:>10} {:>6} {:>7} {:>5} {:>6} {:>5}  {}\n", "shape", "pass", "who",
               "median ms", "least ms", "spread", "GMAC/s", "share", "GB/s", "reads", "check");
  }
  const std::string match = args.Text("match", "");
  for (const AttentionBenchShape& shape : ReadAttentionShapes(args.Text("shapes", ShapeFile("attention.txt")))) {
    if ((shape.name + " " + shape.pass).find(match) == std::string::npos) continue;
    const std::vector<Contender> contenders = AttentionContenders(bench, shape);
    const std::vector<Timing> timings = Race(contenders, options);
    for (size_t i = 0; i < contenders.size(); ++i) PrintRow(json, shape, contenders[i], timings[i], limits);
  }
  return 0;
}

}  // namespace
}  // namespace octavo::bench

int main(int argc, char** argv) {
  using namespace octavo;
  return bench::RunDriver(bench::Spec(), argc, argv, [&](const Args& args) {
    bench::HoldToIsa(args.Text("isa", ""), argv);
    return bench::Run(args);
  });
}
