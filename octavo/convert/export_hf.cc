// The way out to model folders that transformers loads: weights/hf_export.h with codes turned into floats, and the
// files that belong to the model.
#include <algorithm>
#include <filesystem>

#include "octavo/base/error.h"
#include "octavo/base/mapped_file.h"
#include "octavo/convert/export.h"
#include "octavo/quant/quantize.h"
#include "octavo/weights/carried.h"
#include "octavo/weights/hf_export.h"

namespace octavo::convert {
namespace {

namespace fs = std::filesystem;

// A parameter in floats; counts those that were codes.
Tensor ReadFloats(const ExportRequest& request, const std::string& name, int64_t* decoded) {
  weights::ParameterValue value = request.read(name);
  if (Tensor* plain = std::get_if<Tensor>(&value)) return std::move(*plain);
  ++*decoded;
  return quant::Dequantize(std::get<QArray>(value));
}

}  // namespace

std::string NoTokenizerNote(const weights::StoredModel& source) {
  return source.tokenizer == "bytes" ? "tokenizer_path=bytes is not stored; give it again to generate, eval and serve"
                                     : "no tokenizer is carried; give tokenizer_path=…";
}

DType ExportType(const ExportRequest& request) {
  if (request.dtype) return *request.dtype;
  std::optional<DType> common;
  for (const auto& [name, tensor] : request.source.floats.tensors) {
    if (common && *common != tensor.dtype) return DType::kF32;
    common = tensor.dtype;
  }
  return common.value_or(DType::kF32);
}

void CopyCarried(const weights::StoredModel& source, FolderPublisher& folder, ExportResult& result) {
  for (const weights::CarriedFile& file : source.carried) {
    if (file.path.empty()) continue;  // a part of a GGUF file, which transformers would not look for
    const MappedFile bytes(file.path);
    FileWriter writer = folder.Create(file.name);
    writer.Write(bytes.bytes());
    writer.Close();
    result.files.push_back(file.name);
  }
}

ExportResult ExportHf(const ExportRequest& request, FolderPublisher& folder) {
  ExportResult result;
  weights::HfExportOptions options;
  options.dtype = ExportType(request);
  int64_t decoded = 0;
  const auto all = static_cast<int64_t>(request.source.floats.tensors.size());
  const auto read = [&](const std::string& name) {
    if (request.progress) request.progress(result.tensors, all);
    ++result.tensors;
    return ReadFloats(request, name, &decoded);
  };
  weights::ExportHf(request.source.config, read, options, folder);
  if (decoded > 0) {
    result.notes.push_back(fmt::format("{} tensors: codes became {}; activations are not quantized there", decoded,
                                       NameOf(options.dtype)));
  }
  CopyCarried(request.source, folder, result);
  if (std::ranges::none_of(result.files, weights::IsTokenizerName)) {
    result.notes.emplace_back(weights::CarriesTokenizer(request.source) && request.source.tokenizer != "bytes"
                                  ? "the tokenizer is inside the source's GGUF file and is not written"
                                  : NoTokenizerNote(request.source));
  }
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder.temporary())) {
    if (entry.is_regular_file()) result.bytes += entry.file_size();
  }
  return result;
}

}  // namespace octavo::convert
