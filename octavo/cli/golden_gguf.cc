// GGUF files of one model in several types with what transformers computes from each: a manifest of kind "gguf", files
// model-TYPE.gguf, and expected.safetensors with TYPE.logits …, TYPE.dequant.NAME.
#include "octavo/checkpoint/gguf.h"
#include "octavo/cli/golden.h"
#include "octavo/cli/golden_decoder.h"
#include "octavo/cli/golden_manifest.h"
#include "octavo/weights/gguf.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;

// TYPE.dequant.NAME: the blocks of the file as they lie there.
void RunBlocks(const GgufContent& content, const std::string& prefix, const SafetensorsFile& expected,
               GoldenFolderCases& cases) {
  const std::string begin = prefix + "dequant.";
  for (const StoredTensor& stored : expected.tensors()) {
    if (!stored.name.starts_with(begin)) continue;
    cases.Run(stored.name, [&]() -> Mismatch {
      const GgufTensor* tensor = content.FindTensor(std::string_view(stored.name).substr(begin.size()));
      if (tensor == nullptr) ThrowFile("no such tensor");
      Tensor values = Tensor::Empty(Shape(tensor->shape), DType::kF32);
      DecodeBlocks(tensor->type, tensor->bytes, values.MutableValues<float>());
      return CompareBits(CopyOf(stored), values);
    });
  }
}

bool Accepts(const fs::path& folder) { return ManifestKind(folder) == "gguf"; }

GoldenFolderResult Run(const fs::path& folder, ThreadPool& pool) {
  const SafetensorsFile expected(folder / "expected.safetensors");
  GoldenFolderResult result;
  GoldenFolderCases cases(result);
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".gguf") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  for (const fs::path& path : files) {
    const std::string stem = path.stem().string();
    const std::string prefix = stem.substr(stem.rfind('-') + 1) + ".";
    try {
      RunBlocks(GgufFile(path).content(), prefix, expected, cases);
      const weights::HfModel gguf = weights::OpenGguf(path);
      const std::unique_ptr<models::Model> model = LoadGoldenModel(gguf.config.config, gguf.source);
      RunGoldenDecoder({*model, gguf.pieces, expected, prefix, true}, prefix, pool, cases);
    } catch (const Error& error) {
      cases.Fail(prefix + "model", error.what());
    }
  }
  if (files.empty()) cases.Fail("files", "the folder has no .gguf file");
  return result;
}

}  // namespace

GoldenFolderKind GgufFolderKind() { return {"GGUF files", Accepts, Run}; }

}  // namespace octavo
