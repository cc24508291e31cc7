// The ways out to other tools' formats, called by the converter once it knows what each parameter becomes. ExportHf is
// in export_hf.cc, ExportGguf in export_gguf.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "octavo/base/publish.h"
#include "octavo/weights/stored_model.h"

namespace octavo::convert {

// What is printed when the target will have no tokenizer.
std::string NoTokenizerNote(const weights::StoredModel& source);

struct ExportRequest {
  const weights::StoredModel& source;  // configuration, carried files, tokenizer
  // A parameter by our name as the target is to hold it: floats, or the codes of a recipe or of the source. Reads and
  // quantizes when it is called; hold one at a time. May be called twice for the same name.
  std::function<weights::ParameterValue(const std::string&)> read;
  std::optional<DType> dtype;  // of floats: f32, bf16 or f16; unset: as the source stores them
  // Called before each parameter is written, for progress: parameters done and their count.
  std::function<void(int64_t, int64_t)> progress;
};

struct ExportResult {
  uint64_t bytes = 0;  // of everything written
  int64_t tensors = 0, quantized = 0;
  std::vector<std::string> files;  // carried files that were written, by name
  std::vector<std::string> notes;  // what the format cannot hold and became instead: a printed line each
};

// The type that floats are written in: the one asked for, or the source's if all of its parameters have one, else f32.
DType ExportType(const ExportRequest& request);

// A folder that transformers loads with equal logits: config.json, safetensors in one float type, and the carried
// files. Codes are dequantized, with a note.
ExportResult ExportHf(const ExportRequest& request, FolderPublisher& folder);

// One GGUF file with the tokenizer and the chat template in it. Codes of int8 / int4 with a scale per channel or per
// group of 32 become Q8_0 / Q4_0: without loss where the scales are f16 numbers, else the scales are rounded and a note
// says by how much. Other codes are dequantized and written as floats, with a note.
ExportResult ExportGguf(const ExportRequest& request, FilePublisher& file);

}  // namespace octavo::convert
