// `./run bench gemm`: every matmul family against OpenBLAS and oneDNN on the shapes of bench/shapes/, in one run, with
// the limits of the machine measured in the same run. Each result is checked before it is timed.
#include "bench/gemm.h"

#include <cstdio>

#include "bench/common/driver.h"
#include "bench/common/isa_option.h"
#include "bench/common/peers.h"
#include "bench/common/report.h"
#include "octavo/base/error.h"
#include "octavo/cli/args.h"
#include "octavo/kernels/limits.h"

namespace octavo::bench {
namespace {

const Family kFamilies[] = {
    {"f32", "f32 x f32 -> f32", &F32Contenders},
    {"fp8", "float8_e4m3fn x float8_e4m3fn -> f32", &Fp8Contenders},
    {"weights", "f32 activations x bf16, int8, int4, nf4, fp8 and mx weights, packed", &WeightContenders},
    {"int8", "int8 x int8 -> int32, weights packed; oneDNN's saturating sums beside it", &I8Contenders},
    {"linear8", "f32 -> f32 through int8: quantize, multiply, scale; forward and both gradients", &I8LinearContenders},
    {"int4", "int8 activations x int4 weights -> f32: per channel, groups of 128 and 32", &U4Contenders},
    {"ragged8", "64 uneven experts in int8, against one dense product of as many rows", &I8GroupedContenders},
};

std::string Details() {
  std::string details = "Families:";
  for (const Family& family : kFamilies) details += fmt::format("\n  {:<12} {}", family.name, family.summary);
  return details;
}

VerbSpec Spec(std::string_view details) {
  VerbSpec spec;
  spec.name = "bench gemm";
  spec.synopsis = "[--shapes FILE] [--families A,B] [--quick] [--json]";
  spec.summary = "time the matmul families against OpenBLAS and oneDNN";
  spec.details = details;
  spec.options = {{"shapes", "FILE", "text file of shapes (default: bench/shapes/train.txt and decode.txt)"},
                  {"families", "LIST", "comma-separated names (default: all)"},
                  {"match", "TEXT", "only shapes whose name contains TEXT"},
                  {"rounds", "N", "samples per contender (default 7)"},
                  {"isa", "NAME", kIsaHelp},
                  {"quick", "", "bench/shapes/quick.txt and 3 rounds"}};
  return spec;
}

std::vector<const Family*> Chosen(const std::string& list) {
  std::vector<const Family*> chosen;
  if (list.empty()) {
    for (const Family& family : kFamilies) chosen.push_back(&family);
    return chosen;
  }
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    const std::string name = list.substr(begin, end - begin);
    const Family* found = nullptr;
    for (const Family& family : kFamilies) {
      if (family.name == name) found = &family;
    }
    if (found == nullptr) ThrowUsage("bench gemm: no family '{}'; see --help", name);
    chosen.push_back(found);
    begin = end + 1;
  }
  return chosen;
}

std::vector<Shape> ChosenShapes(const Args& args) {
  std::vector<std::string> files = {ShapeFile("train.txt"), ShapeFile("decode.txt")};
  if (args.Switch("quick")) files = {ShapeFile("quick.txt")};
  if (args.Has("shapes")) files = {args.Text("shapes", "")};
  std::vector<Shape> shapes;
  for (const std::string& file : files) {
    for (const Shape& shape : ReadShapes(file)) {
      if (shape.name.find(args.Text("match", "")) != std::string::npos) shapes.push_back(shape);
    }
  }
  return shapes;
}

int Run(const Args& args) {
  const std::vector<const Family*> families = Chosen(args.Text("families", ""));
  const std::vector<Shape> shapes = ChosenShapes(args);
  HarnessOptions options;
  options.rounds = static_cast<int>(args.Int("rounds", args.Switch("quick") ? 3 : 7, 1, 1000));
  ThreadPool pool(args.Threads());
  kernels::Workspace workspace;
  const kernels::IsaChoice isa = kernels::ChooseIsa();
  Bench bench{pool, isa.isa, workspace};
  SetPeerThreads(pool.size());
  const auto limits = kernels::MeasureLimits(pool, isa.isa);
  Report report(args.Switch("json"), limits);
  report.Header(
      fmt::format("octavo {} ({}), {} threads; {}", kernels::NameOf(isa.isa), isa.reason, pool.size(), PeerVersions()));
  for (const Shape& shape : shapes) {
    std::vector<Contender> contenders = BaselineContenders(bench, shape);
    for (const Family* family : families) {
      for (Contender& contender : family->make(bench, shape)) contenders.push_back(std::move(contender));
    }
    report.SetLimits(kernels::MeasureLimits(pool, isa.isa, 3));
    report.Add(shape, contenders, Race(contenders, options));
  }
  report.Finish();
  return 0;
}

}  // namespace
}  // namespace octavo::bench

int main(int argc, char** argv) {
  using namespace octavo;
  const std::string details = bench::Details();
  return bench::RunDriver(bench::Spec(details), argc, argv, [&](const Args& args) {
    bench::HoldToIsa(args.Text("isa", ""), argv);
    return bench::Run(args);
  });
}
