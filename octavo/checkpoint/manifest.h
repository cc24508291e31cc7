// manifest.json of a checkpoint: which tensors there are, in which file, with which digest, and the texts that belong
// to them. The on-disk form is described in docs/formats/checkpoint.md. Read strictly: a manifest whose own digest does
// not match is damaged, whatever it says.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace octavo {

// The newest version that is read. What is written has the lowest that can say it: 2 when parameters are quantized.
inline constexpr int kManifestVersion = 2;

struct ManifestFile {
  uint64_t bytes = 0;
  std::string header_digest;  // of the length and the header of the safetensors file
};

struct ManifestTensor {
  std::string file;
  std::string type;  // "F32", …
  std::vector<int64_t> shape;
  std::string digest;  // of its data
};

// A parameter that is stored as codes: tensors "<name>.codes", "<name>.scale" and, if it has one, "<name>.zero".
struct ManifestQuantized {
  std::string format;                     // "int4", "float8_e4m3fn", … (numerics/format.h)
  std::vector<int64_t> shape;             // of the codes before packing
  std::vector<int64_t> tile;              // elements of each axis that share a scale
  double sqnr_db = 0, largest_error = 0;  // against the floats it was made from; infinite dB is written as 999
};

// A text file that belongs to the model: tokenizer, template, generation config.
struct ManifestCarried {
  uint64_t bytes = 0;
  std::string digest;
};

struct Manifest {
  // "train": parameters, optimizer and recipe state; "params": parameters alone, in floats; "quantized": parameters
  // alone, as codes where the recipe quantizes.
  std::string kind;
  int64_t step = 0;
  std::string producer;    // "octavo 0.1.0"
  std::string config;      // effective config, YAML
  std::string recipe;      // recipe text; empty without quantization
  std::string data_state;  // where the data source was, JSON
  std::map<std::string, ManifestFile> files;
  std::map<std::string, ManifestTensor> tensors;  // by name

  // Of converted checkpoints; empty in those of runs, whose config says it all.
  std::string model;                      // configuration of the model, one JSON object
  std::string plan;                       // the printed table
  std::string recipe_name, recipe_mixed;  // with `recipe`, what the rules are made from again
  std::vector<std::pair<std::string, std::string>> recipe_options;
  std::string source_name, source_kind, source_digest;  // what it was converted from
  std::map<std::string, ManifestQuantized> quantized;   // by parameter
  std::map<std::string, ManifestCarried> carried;       // by file name

  // One digest over names, types, shapes and digests of all tensors, or of those whose name begins with `prefix`
  // ("opt/"), in the order of the names, and the formats of codes: equal if and only if all their bits are.
  std::string Bits(std::string_view prefix = "") const;
};

std::string ManifestText(const Manifest& manifest);
// `where` names the file in errors.
Manifest ParseManifest(std::string_view text, const std::string& where);

}  // namespace octavo
