// manifest.json of a checkpoint: which tensors there are, in which file, with which digest, and the texts that belong
// to them. The on-disk form is described in docs/formats/checkpoint.md. Read strictly: a manifest whose own digest does
// not match is damaged, whatever it says.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace octavo {

inline constexpr int kManifestVersion = 1;

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

struct Manifest {
  std::string kind;  // "train": parameters, optimizer and recipe state; "params": parameters alone
  int64_t step = 0;
  std::string producer;    // "octavo 0.1.0"
  std::string config;      // effective config, YAML
  std::string recipe;      // recipe text; empty without quantization
  std::string data_state;  // where the data source was, JSON
  std::map<std::string, ManifestFile> files;
  std::map<std::string, ManifestTensor> tensors;  // by name

  // One digest over names, types, shapes and digests of all tensors, or of those whose name begins with `prefix`
  // ("opt/"), in the order of the names: equal if and only if all their bits are.
  std::string Bits(std::string_view prefix = "") const;
};

std::string ManifestText(const Manifest& manifest);
// `where` names the file in errors.
Manifest ParseManifest(std::string_view text, const std::string& where);

}  // namespace octavo
