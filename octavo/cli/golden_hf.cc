// Model folders of the Hugging Face form with what transformers computes from them: a manifest of kind "model" or
// "quantized", and expected.safetensors with codes, dequantized weights, logits, loss, gradients and a continuation.
#include <nlohmann/json.hpp>

#include "octavo/base/error.h"
#include "octavo/checkpoint/sharded.h"
#include "octavo/checkpoint/strict_json.h"
#include "octavo/cli/golden.h"
#include "octavo/cli/golden_decoder.h"
#include "octavo/cli/golden_manifest.h"
#include "octavo/quant/provider.h"
#include "octavo/weights/hf.h"
#include "octavo/weights/load_model.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

Json ReadConfig(const fs::path& path) { return ParseStrictJson(ReadSmallFile(path), path.string()); }

const weights::LogicalTensor& LogicalAt(const weights::LogicalTensors& tensors, const std::string& name) {
  const auto found = tensors.tensors.find(name);
  if (found == tensors.tensors.end()) ThrowFile("no tensor '{}'", name);
  return found->second;
}

const weights::LogicalTensor& QuantizedAt(const weights::LogicalTensors& tensors, const std::string& name) {
  const weights::LogicalTensor& tensor = LogicalAt(tensors, name);
  if (!tensor.read_lattice) ThrowFile("'{}' is not quantized", name);
  return tensor;
}

// dequant.X: the values, straight and through the QArray where there is one. codes.X: the codes.
void RunCodes(const fs::path& folder, const SafetensorsFile& expected, GoldenFolderCases& cases) {
  constexpr std::string_view kDequant = "dequant.", kCodes = "codes.";
  weights::LogicalTensors tensors;
  for (const StoredTensor& stored : expected.tensors()) {
    const bool values = stored.name.starts_with(kDequant);
    if (!values && !stored.name.starts_with(kCodes)) continue;
    const std::string name = stored.name.substr(values ? kDequant.size() : kCodes.size());
    cases.Run(stored.name, [&]() -> Mismatch {
      if (tensors.tensors.empty()) {
        tensors = weights::OpenLogical(std::make_shared<const ShardedSafetensors>(folder),
                                       ReadConfig(folder / "config.json").value("quantization_config", Json()));
      }
      const weights::LogicalTensor& tensor = QuantizedAt(tensors, name);
      if (!values) return CompareBits(CopyOf(stored), tensor.read_lattice().codes);
      return CompareBits(CopyOf(stored), tensor.read());
    });
  }
}

bool Accepts(const fs::path& folder) {
  const std::string kind = ManifestKind(folder);
  return kind == "model" || kind == "quantized";
}

// The same logits from the codes as they are stored, where ours can hold them: what the converter keeps and serves.
void RunKeptCodes(const fs::path& folder, const std::vector<weights::HfPiece>& pieces, const SafetensorsFile& expected,
                  ThreadPool& pool, GoldenFolderCases& cases) {
  const weights::StoredModel stored = weights::OpenStored(folder);
  if (!stored.quantized()) return;
  const weights::LoadedModel loaded = weights::LoadModel(stored, {}, pool, kernels::ChooseIsa().isa);
  quant::Provider provider(*loaded.plan);
  RunGoldenDecoder({*loaded.model, pieces, expected, "", false, &provider}, "kept codes: ", pool, cases);
}

// The folder under one spelling of its configuration.
void RunModel(const fs::path& folder, const std::string& config, const SafetensorsFile& expected, ThreadPool& pool,
              GoldenFolderCases& cases) {
  const bool first = config == "config.json";
  const std::string prefix = first ? "" : config + ": ";
  try {
    const weights::HfModel hf = weights::OpenHf(folder, config);
    const std::unique_ptr<models::Model> model = LoadGoldenModel(hf.config.config, hf.source);
    RunGoldenDecoder({*model, hf.pieces, expected, "", first}, prefix, pool, cases);
    if (first) RunKeptCodes(folder, hf.pieces, expected, pool, cases);
  } catch (const Error& error) {
    cases.Fail(prefix + "model", error.what());
  }
}

// logits_act_quant has no bound in the reference data (one rounded activation more or less changes it) and is not
// compared.
GoldenFolderResult Run(const fs::path& folder, ThreadPool& pool) {
  const SafetensorsFile expected(folder / "expected.safetensors");
  GoldenFolderResult result;
  GoldenFolderCases cases(result);
  RunCodes(folder, expected, cases);
  for (const char* config : {"config.json", "config_legacy.json"}) {
    if (fs::exists(folder / config)) RunModel(folder, config, expected, pool, cases);
  }
  return result;
}

}  // namespace

GoldenFolderKind HfFolderKind() { return {"model folder", Accepts, Run}; }

}  // namespace octavo
