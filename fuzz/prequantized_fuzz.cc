// A quantization_config on the first line and a safetensors file after it: tensors that can be read as floats and as
// codes, or a file error. The file goes through a real folder, as it does in the product.
#include <fstream>
#include <nlohmann/json.hpp>

#include "octavo/base/error.h"
#include "octavo/base/temp_folder.h"
#include "octavo/checkpoint/strict_json.h"
#include "octavo/weights/prequantized.h"

namespace {

void ReadAll(const octavo::weights::LogicalTensors& tensors) {
  for (const auto& [name, tensor] : tensors.tensors) {
    try {
      if (tensor.read_lattice) {
        std::string reason;
        octavo::weights::ToQArray(tensor.read_lattice(), &reason);
      }
      tensor.read();
    } catch (const octavo::Error&) {
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const octavo::TempFolder folder;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t end = text.find('\n');
  if (end == std::string_view::npos) return 0;
  try {
    const nlohmann::json config = octavo::ParseStrictJson(text.substr(0, end), "fuzz");
    std::ofstream(folder / "model.safetensors", std::ios::binary) << text.substr(end + 1);
    ReadAll(octavo::weights::OpenLogical(std::make_shared<const octavo::ShardedSafetensors>(folder.path()), config));
  } catch (const octavo::Error&) {
  }
  return 0;
}
