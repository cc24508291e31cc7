// Any bytes as a GGUF file: content or a file error, nothing else. What was read is also decoded and configured.
#include "octavo/base/error.h"
#include "octavo/checkpoint/gguf.h"
#include "octavo/weights/gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const octavo::GgufContent content = octavo::ParseGguf({reinterpret_cast<const std::byte*>(data), size}, "fuzz");
    for (const octavo::GgufTensor& tensor : content.tensors()) {
      if (octavo::Info(tensor.type).decode == nullptr) continue;
      std::vector<float> values(static_cast<size_t>(tensor.count));
      octavo::DecodeBlocks(tensor.type, tensor.bytes, values);
    }
    for (const auto& [key, value] : content.values()) {
      if (value.is_array && value.type == octavo::GgufValueType::kText) content.Texts(key);
    }
    octavo::weights::GgufConfig(content);
  } catch (const octavo::Error&) {
  }
  return 0;
}
