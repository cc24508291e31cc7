#include "octavo/cli/inspect_run_verb.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "octavo/base/error.h"
#include "octavo/checkpoint/checkpoint.h"
#include "octavo/checkpoint/checkpoint_store.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

bool IsRun(const fs::path& path) { return fs::is_directory(path / "checkpoints"); }

struct Counts {
  int64_t parameters = 0, optimizer = 0, state = 0;  // tensors
  int64_t elements = 0;                              // of parameters
  double bytes = 0;
};

Counts CountTensors(const Manifest& manifest) {
  Counts counts;
  for (const auto& [name, tensor] : manifest.tensors) {
    int64_t elements = 1;
    for (const int64_t axis : tensor.shape) elements *= axis;
    if (name.starts_with("opt/")) {
      ++counts.optimizer;
    } else if (name.starts_with("state/")) {
      ++counts.state;
    } else {
      ++counts.parameters;
      counts.elements += elements;
    }
  }
  for (const auto& item : manifest.files) counts.bytes += static_cast<double>(item.second.bytes);
  return counts;
}

// The digest of the parameters alone: equal for a training checkpoint and one made of its parameters.
std::string ParameterBits(const Manifest& manifest) {
  Manifest parameters;
  for (const auto& [name, tensor] : manifest.tensors) {
    if (!name.starts_with("opt/") && !name.starts_with("state/")) parameters.tensors[name] = tensor;
  }
  return parameters.Bits();
}

void PrintTensors(const Manifest& manifest, bool json) {
  for (const auto& [name, tensor] : manifest.tensors) {
    if (json) {
      fmt::print("{}\n", Json({{"event", "tensor"},
                               {"name", name},
                               {"dtype", tensor.type},
                               {"shape", tensor.shape},
                               {"digest", tensor.digest},
                               {"file", tensor.file}})
                             .dump());
    } else {
      fmt::print("{:<64} {:<5} {:<20} {}\n", name, tensor.type, fmt::format("[{}]", fmt::join(tensor.shape, ", ")),
                 tensor.digest);
    }
  }
}

void PrintCheckpoint(const Checkpoint& checkpoint, const Args& args) {
  const Manifest& manifest = checkpoint.manifest();
  const Counts counts = CountTensors(manifest);
  if (args.Switch("verify")) checkpoint.Verify();
  if (args.Switch("tensors")) PrintTensors(manifest, args.Switch("json"));
  if (args.Switch("json")) {
    fmt::print("{}\n", Json({{"event", "checkpoint"},
                             {"path", checkpoint.folder().string()},
                             {"kind", manifest.kind},
                             {"step", manifest.step},
                             {"producer", manifest.producer},
                             {"tensors", manifest.tensors.size()},
                             {"parameters", counts.elements},
                             {"bytes", counts.bytes},
                             {"verified", args.Switch("verify")},
                             {"parameter_bits", ParameterBits(manifest)},
                             {"bits", manifest.Bits()}})
                           .dump());
    return;
  }
  fmt::print("checkpoint  {}   {}   step {}   {}\n", checkpoint.folder().string(), manifest.kind, manifest.step,
             manifest.producer);
  fmt::print(
      "tensors     {} parameters ({} elements), {} of the optimizer, {} of recipe state   {:.2f} MiB in {} file{}\n",
      counts.parameters, counts.elements, counts.optimizer, counts.state, counts.bytes / (1 << 20),
      manifest.files.size(), manifest.files.size() == 1 ? "" : "s");
  fmt::print("parameters  {}\n", ParameterBits(manifest));
  fmt::print("bits        {}   parameters, optimizer and recipe state\n", manifest.Bits());
  if (args.Switch("verify")) {
    fmt::print("verify      {} tensors, {} checksums ok, no holes, no duplicates\n", manifest.tensors.size(),
               manifest.tensors.size());
  }
}

}  // namespace

bool IsRunOrCheckpoint(const std::string& path) { return IsCheckpoint(path) || IsRun(path); }

int InspectRun(const Args& args) {
  const fs::path path = args.positionals()[0];
  if (IsCheckpoint(path)) {
    PrintCheckpoint(Checkpoint(path), args);
    return 0;
  }
  const CheckpointStore store(path / "checkpoints", {});
  const std::vector<int64_t> steps = store.Steps();
  if (steps.empty()) ThrowUsage("{} is a run without checkpoints", path.string());
  if (!args.Switch("json")) fmt::print("run         {}   checkpoints {}\n", path.string(), fmt::join(steps, ", "));
  PrintCheckpoint(Checkpoint(store.PathOf(steps.back())), args);
  return 0;
}

}  // namespace octavo
